"""Build what a release consists of, and use it as its users would: `make release-check`.

The wheel and the source distribution are built in `build/release/dist` and checked by twine. Each is installed in a
clean environment, must bring every file of the package, and serves a function there.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import venv
import zipfile
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

ROOT = Path(__file__).parents[1]
RELEASE = ROOT / "build" / "release"
DIST = RELEASE / "dist"
FUNCTION = "def add(a: float, b: float) -> float:\n    return a + b\n"
REQUEST = {
    "inputs": [
        {"name": name, "datatype": "FP64", "shape": [1], "data": [value]}
        for name, value in (("a", 1.5), ("b", 2))
    ]
}
START_SECONDS = 60


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """What the command prints.

    Raises:
        SystemExit: it failed; with all that it printed.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(  # noqa: S603 - commands of our own
        command,
        cwd=cwd,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}")
    return done.stdout


def environment(name: str, *packages: str | Path) -> Path:
    """The `bin` of a clean environment with these packages."""
    directory = RELEASE / name
    venv.create(directory, with_pip=True, clear=True)
    run(directory / "bin" / "pip", "install", "--quiet", *packages)
    return directory / "bin"


def package_files() -> set[str]:
    """The files of the package in the repository, from `halimede/` on."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "src/halimede").splitlines()
    return {name.removeprefix("src/") for name in listed if (ROOT / name).exists()}


def missing_files(distribution: Path) -> list[str]:
    """Files of the package that the wheel or source distribution lacks."""
    if distribution.suffix == ".whl":
        with zipfile.ZipFile(distribution) as archive:
            found = set(archive.namelist())
    else:
        with tarfile.open(distribution) as archive:
            found = {name.partition("/src/")[2] for name in archive.getnames()}
    return sorted(package_files() - found)


def serves(binaries: Path, directory: Path) -> None:
    """Serve a function with the installed package, in a directory of its own.

    Raises:
        SystemExit: the server ended, or did not answer with the sum.
    """
    directory.mkdir()
    (directory / "app.py").write_text(FUNCTION)
    socket = "127.0.0.1"
    port = run(
        sys.executable, "-c", "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1])"
    )
    command = [
        binaries / "halimede",
        "serve",
        "app.py:add",
        f"--http-address={socket}",
        f"--http-port={port.strip()}",
    ]
    with subprocess.Popen(  # noqa: S603 - a command of our own
        [*command, "--allow-grpc=false", "--allow-metrics=false"],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=(directory / "errors").open("w"),
    ) as server:
        try:
            answer = json.loads(_answer(server, f"http://{socket}:{port.strip()}/v2/models/add/infer"))
            if answer["outputs"][0]["data"] != [3.5]:
                raise SystemExit(f"the sum of 1.5 and 2 is {answer}")
        finally:
            server.terminate()


def _answer(server: "subprocess.Popen[bytes]", url: str) -> bytes:
    """The answer to the request, as soon as the server is there."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            with urlopen(Request(url, json.dumps(REQUEST).encode())) as response:  # noqa: S310 - http
                return bytes(response.read())
        except URLError as error:
            if server.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the installed server does not answer: {error}") from error
            time.sleep(0.1)


def main() -> int:
    """0; what is wrong ends the program."""
    shutil.rmtree(RELEASE, ignore_errors=True)
    tools = environment("tools", "build", "twine")
    run(tools / "python", "-m", "build", "--outdir", DIST, ROOT)
    distributions = sorted(DIST.iterdir())
    sys.stdout.write(run(tools / "twine", "check", "--strict", *distributions))
    if sorted(each.suffix for each in distributions) != [".gz", ".whl"]:
        raise SystemExit(f"expected a wheel and a source distribution, and got {distributions}")
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for distribution in distributions:
        missing = missing_files(distribution)
        if missing:
            raise SystemExit(f"{distribution.name} lacks {', '.join(missing)}")
        name = distribution.suffix.removeprefix(".")
        binaries = environment(name, distribution)
        for script in scripts:
            version = run(binaries / script, "--version", cwd=RELEASE).strip()
        place = run(binaries / "python", "-c", "import halimede; print(halimede.__file__)", cwd=RELEASE)
        if not (Path(place.strip()).parent / "py.typed").exists():
            raise SystemExit(f"{distribution.name} installs no py.typed")
        serves(binaries, RELEASE / f"{name}-serves")
        sys.stdout.write(f"{distribution.name}: complete, installed and served a function; {version}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
