"""The walk-through of iterative sequences, trained for a moment: a network that writes for many callers at once."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from examples.iterative.network import STORY, train, write
from tests.examples.test_pages import commands
from tests.support.server import ServerProcess, start_server
from tests.support.walkthroughs import run_module, without_numbers


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make iterative` builds, with less training."""
    directory = tmp_path_factory.mktemp("iterative")
    printed = run_module("examples.iterative.build", directory, "--steps=60")
    assert printed.endswith(f"{directory}/models: writer")
    return directory


@pytest.fixture(scope="module")
def server(built: Path) -> Iterator[ServerProcess]:
    """What `make iterative` starts."""
    with start_server(built / "models") as running:
        yield running


def ask(server: ServerProcess, **members: object) -> tuple[int, list[dict[str, object]]]:
    """Status and events of `generate_stream`."""
    connection = http.client.HTTPConnection(server.http, timeout=30)
    connection.request("POST", "/v2/models/writer/generate_stream", json.dumps(members))
    response = connection.getresponse()
    lines = response.read().splitlines()
    connection.close()
    return response.status, [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]


def test_callers_share_steps_and_get_their_own_texts(built: Path, server: ServerProcess) -> None:
    weights = built / "models" / "writer" / "1" / "weights.npz"
    printed = run_module("examples.iterative.client", f"--http={server.http}", f"--weights={weights}")

    [page] = [each.output for each in commands("iterative.md") if each.line.endswith("iterative.client")]
    assert len(printed.splitlines()) == len(page.splitlines())
    assert without_numbers(printed.splitlines()[-1]) == without_numbers(page.splitlines()[-1])


def test_each_response_has_one_token_until_there_are_enough(server: ServerProcess) -> None:
    status, events = ask(server, PROMPT="Far ", MAX_TOKENS=5)

    assert status == 200
    assert [len(str(event["TOKEN"])) for event in events] == [1] * 5
    assert [event["CALLERS"] for event in events] == [1] * 5


def test_no_tokens_are_an_empty_stream(server: ServerProcess) -> None:
    assert ask(server, PROMPT="Far ", MAX_TOKENS=0) == (200, [])


def test_wrong_prompt_is_an_error_and_the_next_is_answered(server: ServerProcess) -> None:
    status, [event] = ask(server, PROMPT="#1")

    assert status == 400
    assert event == {"error": "PROMPT has characters that the network does not know: ['#', '1']"}
    assert len(ask(server, PROMPT="One", MAX_TOKENS=3)[1]) == 3


def test_caller_who_leaves_does_not_stop_the_others(server: ServerProcess) -> None:
    leaving = http.client.HTTPConnection(server.http, timeout=30)
    leaving.request("POST", "/v2/models/writer/generate_stream", json.dumps({"PROMPT": "Far "}))
    leaving.getresponse().readline()
    leaving.close()

    assert len(ask(server, PROMPT="One", MAX_TOKENS=20)[1]) == 20


def test_training_is_the_same_each_time() -> None:
    text = STORY.read_text().strip()
    first, characters, loss = train(text, 3)
    second, _, _ = train(text, 3)

    assert loss < np.log(len(characters))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert write(first, characters, "Far ", 5) == write(second, characters, "Far ", 5)
