import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvidia.dali", reason="needs DALI: pip install 'halimede[dali]'")

import tritonclient.http as triton

from halimede.core.tensors import Array
from tests.frameworks.dali.dali_models import decoder, framework, image, pnm, resizer, write
from tests.frameworks.dali.test_dali_files import MODULE
from tests.support.server import ServerProcess, start_server


def infer(server: ServerProcess, model: str, name: str, datatype: str, sent: Array) -> Array:
    """The only output of the model, over HTTP with binary tensors."""
    tensor = triton.InferInput(name, sent.shape, datatype)
    tensor.set_data_from_numpy(sent)
    with triton.InferenceServerClient(server.http) as client:
        output = client.get_model_config(model)["output"][0]["name"]
        found: Array = client.infer(model, [tensor]).as_numpy(output)
    return found


def test_server_answers_images_of_all_sizes_and_goes_on_after_bad_ones(tmp_path: Path) -> None:
    write(tmp_path, decoder(), name="decoder")
    write(tmp_path, resizer(), name="resizer")
    write(tmp_path, MODULE, name="module")
    write(tmp_path, b"not a pipeline", name="bad")
    with start_server(tmp_path, "--exit-on-error=false", "--strict-readiness=false") as server:
        pixels = [image(5 + number, 4) for number in range(6)]
        with ThreadPoolExecutor(6) as clients:
            answers = list(
                clients.map(lambda each: infer(server, "decoder", "IMAGE", "UINT8", pnm(each)), pixels)
            )
        for found, expected in zip(answers, pixels, strict=True):
            assert np.array_equal(found, expected[np.newaxis])
        (resized,) = framework(resizer(), IMAGE=[pnm(pixels[0])[0]])
        assert np.array_equal(infer(server, "resizer", "IMAGE", "UINT8", pnm(pixels[0]))[0], resized[0])
        sent = np.array([[1, 2]], np.float32)
        assert infer(server, "module", "X", "FP32", sent).tolist() == [[3, 6]]
        broken = np.frombuffer(b"not an image", np.uint8)[np.newaxis]
        with pytest.raises(triton.InferenceServerException, match="cannot decode the image: it is no image"):
            infer(server, "decoder", "IMAGE", "UINT8", broken)
        assert infer(server, "decoder", "IMAGE", "UINT8", pnm(pixels[0])).shape == (1, 5, 4, 3)
        index = {entry["name"]: entry for entry in post(server, "/v2/repository/index", {})}
        assert "it is no serialized DALI pipeline" in index["bad"]["reason"]


def test_a_broken_image_is_status_400(tmp_path: Path) -> None:
    write(tmp_path, decoder(), name="decoder")
    tensor = {"name": "IMAGE", "datatype": "UINT8", "shape": [1, 3], "data": [1, 2, 3]}
    with start_server(tmp_path) as server:
        with pytest.raises(urllib.error.HTTPError) as caught:
            post(server, "/v2/models/decoder/infer", {"inputs": [tensor]})
        with caught.value as error:
            assert error.code == 400
            assert "cannot decode the image" in json.loads(error.read())["error"]


def test_requests_share_a_run_in_a_process_of_its_own_too(tmp_path: Path) -> None:
    model = write(tmp_path, decoder())
    isolated = 'parameters { key: "isolation" value { string_value: "process" } }'
    delay = "dynamic_batching { max_queue_delay_microseconds: 1000000 }"
    (model / "config.pbtxt").write_text(f'output {{ name: "OUT" }} {delay} {isolated}')
    pixels = [image(5 + number, 4) for number in range(4)]
    broken = np.frombuffer(b"not an image", np.uint8)[np.newaxis]
    with start_server(tmp_path) as server, ThreadPoolExecutor(5) as clients:
        refused = clients.submit(infer, server, "m", "IMAGE", "UINT8", broken)
        answers = clients.map(lambda each: infer(server, "m", "IMAGE", "UINT8", pnm(each)), pixels)
        for found, expected in zip(answers, pixels, strict=True):
            assert np.array_equal(found, expected[np.newaxis])
        with pytest.raises(triton.InferenceServerException, match="cannot decode the image: it is no image"):
            refused.result()
        _, body = server.get("/v2/models/m/stats")
        (statistics,) = json.loads(body)["model_stats"]
        assert any(each["batch_size"] > 1 for each in statistics["batch_stats"])


def post(server: ServerProcess, path: str, body: object) -> list[dict[str, str]]:
    data = json.dumps(body).encode()
    with urllib.request.urlopen(f"http://{server.http}{path}", data, timeout=30) as response:
        answer: list[dict[str, str]] = json.loads(response.read() or b"null")
    return answer
