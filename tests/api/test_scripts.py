import asyncio
import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from halimede import serve
from tests.api import functions
from tests.support.server import running

PORTS = "http_address='127.0.0.1', grpc_address='127.0.0.1', grpc_port=0, metrics_port=0"


def test_a_script_of_three_lines_serves_its_function(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    (tmp_path / "beside.py").write_text("FACTOR = 2.0\n")
    script.write_text(
        "import sys\n\nimport halimede\nfrom beside import FACTOR\n\n\n"
        "def double(x: float) -> float:\n    return x * FACTOR\n\n\n"
        f"halimede.serve(double, http_port=int(sys.argv[1]), {PORTS})\nprint('after serving')\n"
    )
    with running([sys.executable, str(script), "0"], 3) as server:
        body = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [4]}]}
        request = urllib.request.Request(
            f"http://{server.http}/v2/models/double/infer", json.dumps(body).encode()
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            assert json.load(response)["outputs"][0]["data"] == [8.0]
        assert "| double | __main__:double | function  | no    | x FP64 [1] | output FP64 [1] |" in server.log
        assert "after serving" not in server.log
        assert server.stop() == 0
        assert server.log.count("after serving") == 1


@pytest.mark.parametrize(("served", "name"), [("adder", "adder"), ("Adder(2.0)", "Adder")])
def test_a_script_serves_an_object(tmp_path: Path, served: str, name: str) -> None:
    """One in a global variable is made again in its process, another is sent there."""
    script = tmp_path / "script.py"
    script.write_text(
        "import halimede\n\n\nclass Adder:\n"
        "    def __init__(self, summand: float) -> None:\n        self.summand = summand\n\n"
        "    def __call__(self, x: float) -> float:\n        return x + self.summand\n\n\n"
        f"adder = Adder(2.0)\nhalimede.serve({served}, http_port=0, {PORTS})\n"
    )
    with running([sys.executable, str(script)], 3) as server:
        body = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [4]}]}
        request = urllib.request.Request(
            f"http://{server.http}/v2/models/{name}/infer", json.dumps(body).encode()
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            assert json.load(response)["outputs"][0]["data"] == [6.0]
        assert "| object" in server.log


def test_importing_the_package_costs_next_to_nothing() -> None:
    script = (
        "import sys, halimede\n"
        "heavy = ('numpy', 'uvloop', 'google.protobuf', 'click', 'asyncio')\n"
        "print([name for name in heavy if name in sys.modules])\n"
        "from halimede import Tensor, model, serve, serve_in_background\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n[]\n"


def test_what_the_package_offers_is_listed() -> None:
    import halimede

    stub = Path(halimede.__file__).with_suffix(".pyi").read_text()
    for name in halimede._EXPORTS:  # type: ignore[attr-defined] # noqa: SLF001 - the stub lists what is public
        assert name in dir(halimede)
        assert f" as {name}\n" in stub
        assert getattr(halimede, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        halimede.nothing  # type: ignore[attr-defined] # noqa: B018


def test_a_program_without_a_file_serves_what_it_defines() -> None:
    """As a notebook does: its functions and what they use go to their processes by value."""
    script = (
        "import halimede\n"
        "FACTOR = 3.0\n"
        "def scaled(x: float) -> float:\n"
        "    return x * FACTOR\n"
        "class Sums:\n"
        "    def __init__(self) -> None:\n"
        "        self.sum = 0.0\n"
        "    def __call__(self, x: float) -> float:\n"
        "        self.sum += scaled(x)\n"
        "        return self.sum\n"
        "with halimede.serve_in_background(scaled, Sums) as server:\n"
        "    print(server.model('scaled')(x=2.0)['output'], server.model('Sums')(x=1.0)['output'])\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "[6.] [3.]\n"), result.stderr


def test_serve_in_an_event_loop_says_what_to_use_instead() -> None:
    async def run() -> None:
        serve(functions.greet)

    with pytest.raises(RuntimeError, match=r"as in a notebook; use serve_in_background\(\)"):
        asyncio.run(run())
