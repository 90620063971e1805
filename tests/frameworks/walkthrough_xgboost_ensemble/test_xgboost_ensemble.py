"""The walk-through of trees between Python models, as `make xgboost-ensemble` builds it."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.examples.clients import HTTP, Client
from tests.examples.test_pages import commands
from tests.support.server import ServerProcess, start_server
from tests.support.walkthroughs import run_module

pytest.importorskip("treelite", reason="needs treelite: pip install 'halimede[walkthroughs]'")
pytest.importorskip("xgboost", reason="needs XGBoost: pip install 'halimede[walkthroughs]'")

from examples.xgboost_ensemble.dataset import as_text, load
from examples.xgboost_ensemble.measurements import COLUMNS, features, parse

_FIGURES = re.compile(r"\b0\.\d{4}\b|\d+(?= labels are right)")
"""Confidences, and in the end how many labels are right."""
_ABOUT = 5e-3
"""Versions of XGBoost do not train the very same trees."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make xgboost-ensemble` builds."""
    directory = tmp_path_factory.mktemp("xgboost-ensemble")
    printed = run_module("examples.xgboost_ensemble.build", directory)
    assert printed.endswith(f"{directory}/models: preprocess, trees, postprocess and the ensemble diagnosis")
    return directory


@pytest.fixture(scope="module")
def server(built: Path) -> Iterator[ServerProcess]:
    """What `make xgboost-ensemble` starts."""
    with start_server(built / "models") as running:
        yield running


def shown(part: str) -> tuple[str, str]:
    """The command of the page that has that part, and what the page says that it prints."""
    [(line, output)] = [
        (each.line, each.output) for each in commands("xgboost-ensemble.md") if part in each.line
    ]
    return line, output.rstrip("\n")


def generate(server: ServerProcess, data: str | bytes) -> tuple[int, Any]:
    """Status and answer of `generate`."""
    body = data.encode() if isinstance(data, str) else data
    try:
        url = f"http://{server.http}/v2/models/diagnosis/generate"
        with urllib.request.urlopen(url, body, timeout=30) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_answers_are_those_of_xgboost_and_of_the_page(built: Path, server: ServerProcess) -> None:
    booster = built / "models" / "trees" / "1" / "xgboost.ubj"

    printed = run_module("examples.xgboost_ensemble.client", f"--http={server.http}", f"--booster={booster}")

    on_page = shown("xgboost_ensemble.client")[1]
    assert _FIGURES.sub("…", printed).splitlines() == _FIGURES.sub("…", on_page).splitlines()
    here, there = ([float(each) for each in _FIGURES.findall(text)] for text in (printed, on_page))
    assert here[:-1] == pytest.approx(there[:-1], abs=_ABOUT)
    assert abs(here[-1] - there[-1]) <= 2


def test_client_says_when_the_trees_are_not_those_of_the_server(
    tmp_path: Path, server: ServerProcess
) -> None:
    import xgboost

    data = load()
    other = xgboost.train(
        {"objective": "binary:logistic"}, xgboost.DMatrix(features(data.rows), data.classes), 1
    )
    other.save_model(tmp_path / "other.ubj")

    with pytest.raises(AssertionError, match=r"wrong answer: \d+ of 143 labels .* away from its own; 1e-05"):
        run_module(
            "examples.xgboost_ensemble.client",
            f"--http={server.http}",
            f"--booster={tmp_path / 'other.ubj'}",
        )


def test_page_says_what_generate_answers(server: ServerProcess) -> None:
    line, output = shown("curl")
    data = line.partition("-d '")[2].removesuffix("'")

    status, answer = generate(server, data)

    expected = json.loads(output)
    assert status == 200
    assert answer.pop("CONFIDENCE") == pytest.approx(expected.pop("CONFIDENCE"), abs=_ABOUT)
    assert answer == expected


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("17.99,10.38,122.8", "ROW: a row has 30 values with commas between them, got 3 (in step 0,"),
        (",".join(["1"] * 29 + ["large"]), "ROW: value 30 of the row must be a number, got 'large'"),
    ],
)
def test_rows_that_are_none_are_refused_with_what_is_wrong(
    server: ServerProcess, row: str, message: str
) -> None:
    status, answer = generate(server, json.dumps({"ROW": row}))

    assert status == 400
    assert message in answer["error"]


def test_bad_rows_leave_others_of_their_batch_alone(server: ServerProcess) -> None:
    data = load()
    good = as_text(data.test_rows[0]).encode()
    http = HTTP.InferenceServerClient(server.http, concurrency=16)
    client = Client(HTTP, server)
    sent = [
        http.async_infer("diagnosis", client.tensors("BYTES", {"ROW": np.array([[row]], np.object_)}))
        for row in [good, b"\xff\xfe"] * 8
    ]

    for one in sent[::2]:
        assert one.get_result().as_numpy("LABEL").tolist() == [[b"benign"]]
    for one in sent[1::2]:
        with pytest.raises(Exception, match="ROW: 'utf-8' codec can't decode byte 0xff"):
            one.get_result()
    http.close()
    client.client.close()


def test_missing_values_and_ratios_to_nothing_are_nan() -> None:
    values = parse(",".join(["0", "?", ""] + ["2.5"] * 27))

    assert len(values) == COLUMNS
    found = features(np.array([values]))
    assert np.isnan(found[0, [1, 2]]).all()
    assert np.isnan(found[0, 30:33]).all()
    assert found[0, 33:].tolist() == [1.0] * 7
