"""The package as users get it: a wheel that pip builds, installed in a virtual environment of its own."""

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.docs.pages import ROOT
from tests.support.server import running

pytestmark = pytest.mark.timeout(600)  # pip fetches what the package needs

ADD_ONE = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([
                pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() + 1)
            ])
            for request in requests
        ]
"""
CONFIG = """
backend: "python" max_batch_size: 0
input { name: "INPUT0" data_type: TYPE_INT32 dims: [ 3 ] }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 3 ] }
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    directory = tmp_path_factory.mktemp("dist")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        f"--wheel-dir={directory}",
        str(ROOT),
    ]
    subprocess.run(pip, check=True)
    [path] = directory.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    """What package indexes read of it."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that has the package, without extras, and what it needs."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, with_pip=True)
    subprocess.run([directory / "bin/pip", "install", "--quiet", wheel], check=True)
    return directory / "bin"


def run(*command: str | Path, directory: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command as a user would who has nothing of the checkout on the path."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        command, cwd=directory, env=variables, capture_output=True, text=True, timeout=60, check=False
    )


def test_wheel_holds_the_package_and_nothing_beside_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"halimede"}
    assert "halimede/worker_site/triton_python_backend_utils.py" in names
    assert "halimede/py.typed" in names
    console = "halimede/console/static"
    for name in (
        "index.html",
        "server/main.js",
        "host/main.js",
        "console.css",
        "vendor/uplot/uplot.js",
        "vendor/uplot/LICENSE",
    ):
        assert f"{console}/{name}" in names


def test_metadata_says_whose_it_is_and_where(metadata: Message) -> None:
    urls = dict(url.split(", ", 1) for url in metadata.get_all("Project-URL", []))

    assert {"Source", "Documentation", "Changelog"} <= set(urls)
    assert all(url.startswith(urls["Source"]) for url in urls.values())
    assert metadata["Author"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert f"Programming Language :: Python :: 3.{metadata['Requires-Python'].removeprefix('>=3.')}" in (
        metadata.get_all("Classifier") or []
    )


def test_links_of_the_description_lead_somewhere_outside_of_the_repository(metadata: Message) -> None:
    text = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    urls = dict(url.split(", ", 1) for url in metadata.get_all("Project-URL", []))

    assert text.startswith("# Halimede")
    assert f"{urls['Source']}/blob/main/docs/getting-started.md" in links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_one_command_is_installed(environment: Path) -> None:
    listed = run(environment / "pip", "show", "--files", "halimede", directory=environment)

    assert re.findall(r"/bin/(.*)", listed.stdout) == ["halimede"]
    assert not (environment / "serve").exists()


def test_only_workers_see_the_modules_of_models(environment: Path, tmp_path: Path) -> None:
    utilities = "import triton_python_backend_utils"
    for statement in (utilities, f"import halimede.cli.serve; {utilities}", "import halimede_worker"):
        done = run(environment / "python", "-c", statement, directory=tmp_path)
        module = statement.rpartition(" ")[2]
        assert done.stderr.endswith(f"ModuleNotFoundError: No module named '{module}'\n")


def test_python_model_is_served(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "add_one" / "1").mkdir(parents=True)
    (tmp_path / "add_one" / "1" / "model.py").write_text(ADD_ONE)
    (tmp_path / "add_one" / "config.pbtxt").write_text(CONFIG)
    checked = run(environment / "halimede", "check", tmp_path, directory=tmp_path)
    assert (checked.returncode, checked.stderr) == (0, "")

    command = [
        environment / "halimede", "serve", f"--model-repository={tmp_path}",
        *(f"--{name}-{what}" for name in ("http", "grpc", "metrics") for what in ("address=127.0.0.1", "port=0")),
    ]  # fmt: skip
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with running([str(part) for part in command], 3, environment=variables) as server:
        body = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [3], "data": [1, 2, 3]}]}
        url = f"http://{server.http}/v2/models/add_one/infer"
        with urlopen(Request(url, json.dumps(body).encode())) as response:
            assert json.load(response)["outputs"][0]["data"] == [2, 3, 4]


def test_model_whose_extra_is_missing_is_told_what_to_type(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(b"")

    done = run(environment / "halimede", "check", tmp_path, directory=tmp_path)

    assert done.returncode == 1
    assert 'pip install "halimede[onnx]"' in done.stdout + done.stderr
