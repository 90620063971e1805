"""The walk-through of T5 in a Python model, trained for a few seconds on the numbers below 100."""

import json
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from examples.t5_python.number_words import NUMBERS, english, german, held_out
from tests.examples.clients import HTTP, Client
from tests.examples.test_pages import commands
from tests.support.server import ServerProcess, start_server
from tests.support.walkthroughs import run_module, without_numbers

for package in ("torch", "transformers"):
    if find_spec(package) is None:  # not imported here, as that takes seconds
        pytest.skip(f"needs {package}: pip install 'halimede[walkthroughs]'", allow_module_level=True)

pytestmark = pytest.mark.timeout(300)

SMALL = ("--numbers=100", "--steps=200")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make t5-python` builds, of a smaller language."""
    directory = tmp_path_factory.mktemp("t5-python")
    printed = run_module("examples.t5_python.build", directory, *SMALL)
    assert printed.endswith(f"{directory}/models: t5")
    return directory


@pytest.fixture(scope="module")
def server(built: Path) -> Iterator[ServerProcess]:
    """What `make t5-python` starts."""
    with start_server(built / "models") as running:
        yield running


def ask(server: ServerProcess, rows: list[bytes]) -> list[str]:
    """The translations of the texts of one request."""
    client = Client(HTTP, server)
    tensors = client.tensors("BYTES", {"TEXT": np.array([[row] for row in rows], np.object_)})
    try:
        answer = client.client.infer("t5", tensors).as_numpy("TRANSLATION")
    finally:
        client.client.close()
    return [text.decode() for text in answer[:, 0]]


def test_translations_are_those_of_transformers_and_right(built: Path, server: ServerProcess) -> None:
    checkpoint = built / "models" / "t5" / "1" / "checkpoint"
    where = (f"--http={server.http}", f"--checkpoint={checkpoint}")
    printed = run_module(
        "examples.t5_python.client", *where, "--numbers=100", "seven", "a thousand nights"
    ).splitlines()

    [page] = [each.output for each in commands("t5-python.md") if each.line.endswith("t5_python.client")]
    assert printed[0] == "seven → sieben"
    assert printed[1].startswith("a thousand nights → ")
    assert printed[2] == "102 translations are those of transformers"
    assert [without_numbers(line) for line in printed[2:]] == [
        without_numbers(line) for line in page.splitlines()[-2:]
    ]
    assert int(printed[3].split()[0]) >= 80  # all, usually; training may round differently elsewhere


def test_generate_answers_text_with_text(server: ServerProcess) -> None:
    url = f"http://{server.http}/v2/models/t5/generate"
    with urllib.request.urlopen(url, json.dumps({"TEXT": "forty-two"}).encode(), timeout=30) as response:
        answer = json.loads(response.read())

    [translation] = ask(server, [b"forty-two"])
    assert answer == {"model_name": "t5", "model_version": "1", "TRANSLATION": translation}


def test_requests_of_one_batch_get_their_own_translations(server: ServerProcess) -> None:
    texts = [english(number).encode() for number in range(16)]
    client = Client(HTTP, server)
    http = HTTP.InferenceServerClient(server.http, concurrency=16)
    sent = [
        http.async_infer("t5", client.tensors("BYTES", {"TEXT": np.array([[text]], np.object_)}))
        for text in texts
    ]
    apart = [one.get_result().as_numpy("TRANSLATION")[0, 0].decode() for one in sent]
    http.close()
    client.client.close()

    assert apart == ask(server, texts)
    assert len(set(apart)) > 10


def test_text_that_is_not_utf8_is_refused_and_the_next_is_answered(server: ServerProcess) -> None:
    with pytest.raises(InferenceServerException, match="TEXT must be UTF-8: 'utf-8' codec"):
        ask(server, [b"\xff\xfe"])

    assert ask(server, [b"seven"])


def test_number_words_are_those_of_the_languages() -> None:
    words = {0: "null", 1: "eins", 16: "sechzehn", 21: "einundzwanzig", 30: "dreißig", 70: "siebzig"}
    words |= {
        100: "einhundert",
        101: "einhunderteins",
        111: "einhundertelf",
        999: "neunhundertneunundneunzig",
    }
    assert {number: german(number) for number in words} == words
    assert [english(number) for number in (0, 13, 40, 99, 100, 305, 731)] == [
        "zero",
        "thirteen",
        "forty",
        "ninety-nine",
        "one hundred",
        "three hundred five",
        "seven hundred thirty-one",
    ]
    assert len({german(number) for number in range(NUMBERS)}) == NUMBERS


def test_numbers_that_training_does_not_see_are_a_tenth() -> None:
    assert len(held_out()) == 100
    assert held_out() == held_out()
    assert not held_out(100)
