"""Models whose names have other characters than letters and digits, over HTTP and gRPC alike."""

import json
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import tritonclient.http as triton

from tests.frontends.http.models import STRINGS, serve_models
from tests.frontends.http.serving import get, post

NAMES = (
    "with space",
    "ünïcode",
    "a%20b",
    "100%",
    "a+b",
    "q?x",
    "h#x",
    "qu'ote",
    'quo"te',
    "am&p",
    "ba\\slash",
    "co:l",
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("names")
    for name in (*NAMES, "m"):
        (directory / name / "1").mkdir(parents=True)
        (directory / name / "config.pbtxt").write_text(STRINGS)
    return directory


def test_models_of_any_name_are_loaded_asked_and_unloaded(repository: Path) -> None:
    with serve_models(repository) as server, triton.InferenceServerClient(server.address) as client:
        for name in NAMES:
            client.load_model(name)
            assert client.is_model_ready(name)
            assert client.get_model_metadata(name)["name"] == name
            assert client.get_model_config(name)["name"] == name
            tensor = triton.InferInput("INPUT0", [1], "BYTES")
            tensor.set_data_from_numpy(np.array([name.encode()], np.object_))
            answer = client.infer(name, [tensor])
            assert answer.get_response()["model_name"] == name
            assert answer.as_numpy("OUTPUT0").tolist() == [name.encode()]
            assert client.get_inference_statistics(name)["model_stats"][0]["name"] == name
            client.unload_model(name)


@pytest.mark.parametrize("spelt", ["..%2Fm", "%2e%2e%2fm", "m%00", "m%2f1", "%ff", "m%2f..%2fm"])
def test_a_decoded_slash_leads_nowhere(repository: Path, spelt: str) -> None:
    with serve_models(repository, None, "m") as server, server.served.client() as client:
        for request in (
            get(f"/v2/models/{spelt}"),
            post(b"{}", f"/v2/models/{spelt}/infer"),
            post(b"{}", f"/v2/repository/models/{spelt}/load"),
            post(b"{}", f"/v2/repository/models/{spelt}/unload"),
        ):
            answer = client.ask(request)
            assert (answer.status, json.loads(answer.body)) == (404, {"error": "Not Found"})


@pytest.mark.parametrize("spelt", ["..", "%2e%2e", ".", "%2E", "%252e%252e", "%252Fm"])
def test_a_name_of_dots_is_that_of_no_model(repository: Path, spelt: str) -> None:
    with serve_models(repository, None, "m") as server, server.served.client() as client:
        answer = client.ask(get(f"/v2/models/{spelt}"))
        assert answer.status == 404
        assert "Request for unknown model: " in json.loads(answer.body)["error"]
        assert client.ask(post(b"{}", f"/v2/repository/models/{spelt}/load")).status >= 400
        assert client.ask(get(f"/v2/models/{quote('m')}")).status == 200
