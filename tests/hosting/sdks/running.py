"""Scripts of an SDK, all at once in forks of one process, against one host."""

import json
import os
import signal
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import examples
import halimede
from examples.sagemaker.build import build
from tests.support.host import HostProcess
from tests.support.waiting import wait_until

HERE = Path(__file__).parent
EXAMPLES = Path(examples.__file__).parent
ROLE = "arn:aws:iam::000000000000:role/halimede"

Documents = dict[str, Any]


def build_archives(directory: Path) -> None:
    """Write the archives and the request that scripts take."""
    build(directory)
    with tarfile.open(directory / "archives" / "parrot.tar.gz", "w:gz") as archive:
        archive.add(EXAMPLES / "openai" / "models" / "parrot", "parrot")


class Scripts:
    """Scripts that run.

    Args:
        process: the process that imported the SDK.
        built: where what `build_archives` wrote is, and where results go.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", built: Path) -> None:
        self._process = process
        self._built = built

    def said(self, script: str) -> Documents:
        """What a script has to say when it has ended well."""
        result = self._built / f"{script}.json"
        told = result.with_suffix(".status")
        wait_until(lambda: told.exists() or self._process.poll() is not None, f"{script} to end", timeout=280)
        assert told.read_text() == "0", result.with_suffix(".log").read_text()
        documents: Documents = json.loads(result.read_text())
        return documents


@contextmanager
def run_scripts(
    python: str, sdk: str, scripts: Mapping[str, Sequence[str]], host: HostProcess, built: Path
) -> Iterator[Scripts]:
    """Run scripts, and end what is left of them at the end of the block.

    Args:
        python: the interpreter that has the SDK; it need not have this package.
        sdk: the module to import once for all of them.
        scripts: name → the archives that it takes.
        host: what they use.
        built: what `build_archives` wrote.
    """
    arguments: list[object] = []
    for name, archives in scripts.items():
        paths = [built / "archives" / archive for archive in archives]
        paths += [built / "digit.json", built / f"{name}.json"]
        arguments += ["--", HERE / f"{name}.py", *paths]
    process = subprocess.Popen(
        [python, str(HERE / "impatient.py"), sdk, *map(str, arguments[1:])],
        # no way out: whatever they ask of anybody else fails
        env={
            **host.environment,
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "PYTHONPATH": os.pathsep.join(map(str, (Path(halimede.__file__).parents[1], HERE.parents[2]))),
            "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
        },
        start_new_session=True,
    )
    try:
        yield Scripts(process, built)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
