import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import pytest
import sklearn.datasets
import tritonclient.http as triton

from halimede.core.tensors import Array
from tests.support.server import ServerProcess, start_server

pytest.importorskip("nvidia.dali", reason="needs DALI: pip install 'halimede[dali]'")
if find_spec("tensorflow") is None:
    pytest.skip("needs TensorFlow: pip install 'halimede[tensorflow]'", allow_module_level=True)

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[3]
PICTURES = Path(sklearn.datasets.__file__).with_name("images")


class Modules:
    """A process that runs modules of the example as its page says; TensorFlow shares no process with the tests."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """The exit status of a module, what it printed, and its errors."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(arguments)}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process has ended; its errors are in the output of the test"
        status, printed, errors = json.loads(answer)
        return status, printed, errors


@pytest.fixture(scope="module")
def modules() -> Iterator[Modules]:
    """The process."""
    command = [sys.executable, "-m", "tests.frameworks.inception_ensemble.modules"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:  # it ends when its input does
        yield Modules(process)


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, modules: Modules
) -> Iterator[tuple[ServerProcess, Path]]:
    """The example, built and served, and its repository."""
    directory = tmp_path_factory.mktemp("inception")
    status, printed, errors = modules.run("examples.inception_ensemble.build", str(directory))
    assert (status, printed.splitlines()) == (
        0,
        [f"{directory / 'models'}: preprocess, inception and the ensemble inception_ensemble"],
    ), errors
    flags = ("--model-control-mode=explicit", "--load-model=*")
    with start_server(directory / "models", *flags, ready=False) as server:
        server.wait_until_ready(200)
        yield server, directory / "models"


def ask(server: ServerProcess, file: Array, class_count: int = 0) -> Array:
    """What the ensemble says of an image file."""
    tensor = triton.InferInput("FILE", (1, file.size), "UINT8")
    tensor.set_data_from_numpy(file[np.newaxis])
    output = triton.InferRequestedOutput("PROBABILITIES", class_count=class_count)
    with triton.InferenceServerClient(server.http, network_timeout=100) as client:
        answer: Array = client.infer("inception_ensemble", [tensor], outputs=[output]).as_numpy(
            "PROBABILITIES"
        )
    return answer


def picture(name: str) -> Array:
    return np.frombuffer((PICTURES / name).read_bytes(), np.uint8)


def test_the_client_finds_the_answers_of_the_frameworks(
    server: tuple[ServerProcess, Path], modules: Modules
) -> None:
    status, printed, errors = modules.run("examples.inception_ensemble.client", "--http", server[0].http)
    assert status == 0, errors
    lines = printed.splitlines()
    assert lines[0].startswith("china.jpg: temple 0.99")
    assert lines[1].startswith("flower.jpg: flower 0.99")
    assert lines[2].startswith("2 pictures: probabilities are within ")


def test_pictures_of_different_lengths_are_asked_about_at_once(server: tuple[ServerProcess, Path]) -> None:
    files = [picture("china.jpg"), picture("flower.jpg")] * 3
    with ThreadPoolExecutor(len(files)) as clients:
        answers = list(clients.map(lambda file: ask(server[0], file), files))
    assert [int(answer.argmax()) for answer in answers] == [0, 1] * 3
    for answer in answers:
        assert answer.shape == (1, 2)
        assert abs(answer.sum() - 1) < 1e-5


def test_labels_come_with_the_classes(server: tuple[ServerProcess, Path]) -> None:
    best, second = ask(server[0], picture("flower.jpg"), class_count=2)[0]
    assert best.decode().endswith(":1:flower")
    assert second.decode().endswith(":0:temple")


def test_what_is_no_picture_is_refused_by_the_step_that_reads_it(server: tuple[ServerProcess, Path]) -> None:
    with pytest.raises(triton.InferenceServerException) as caught:
        ask(server[0], np.frombuffer(b"not a picture", np.uint8))
    assert caught.value.status() == "400"
    assert "preprocess" in str(caught.value)
    assert "cannot decode the image" in str(caught.value)


def test_the_client_notices_wrong_preprocessing(server: tuple[ServerProcess, Path], modules: Modules) -> None:
    module = server[1] / "preprocess" / "1" / "dali.py"
    text = module.read_text()
    assert "types.RGB" in text
    module.write_text(text.replace("types.RGB", "types.BGR"))
    load = Request(f"http://{server[0].http}/v2/repository/models/preprocess/load", b"{}", method="POST")
    with urlopen(load, timeout=60):
        status, _, errors = modules.run("examples.inception_ensemble.client", "--http", server[0].http)
    assert status == 1
    assert "wrong pixels: those of" in errors
