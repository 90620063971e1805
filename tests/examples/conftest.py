"""The example repository, built once, and a server of it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import ServerProcess, start_server


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """NumPy's processes have one thread each: on a busy machine several wait for each other all the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that `make serve` builds: `models` and the picture."""
    from examples.build import build  # scikit-learn and ONNX, which few tests need

    directory = tmp_path_factory.mktemp("examples")
    build(directory)
    return directory


@pytest.fixture(scope="session")
def server(examples: Path) -> Iterator[ServerProcess]:
    """A server of all example models."""
    with start_server(examples / "models") as running:
        yield running


@pytest.fixture(scope="session")
def controlled_server(examples: Path) -> Iterator[ServerProcess]:
    """A server that loads what it is told to."""
    with start_server(examples / "models", "--model-control-mode=explicit") as running:
        yield running


@pytest.fixture(scope="session")
def embeddings_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of what `make sentence-embeddings` builds, from the same weights, which are fetched once."""
    directory = tmp_path_factory.mktemp("sentence-embeddings")
    script = "examples/sentence-embeddings/build.py"
    packages = "--packages=build/sentence-embeddings/packages"
    subprocess.run([sys.executable, script, directory, packages], check=True)
    with start_server(directory / "models", "--allow-openai=true") as running:
        yield running
