import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BUILD = """
import sys
from pathlib import Path
from tests.frameworks.pytorch.torch_models import save_package
save_package(Path(sys.argv[1]))
"""


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of `Mixed`, compiled once, in a process of its own as the compiler takes memory and starts others."""
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("needs a C++ compiler, to make packages of AOTInductor")
    path = tmp_path_factory.mktemp("package") / "model.pt2"
    command = [sys.executable, "-W", "ignore", "-c", BUILD, str(path)]
    environment = {
        **os.environ,
        "TORCHINDUCTOR_VEC_ISA_OK": "0",  # no kind of vectors is tried, which takes long
        "AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL": "O0",
    }
    done = subprocess.run(
        command, cwd=Path(__file__).parents[3], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return path
