"""A server of a copy of the repository, whose tuned models have other configurations."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from google.protobuf import text_format

from halimede.bench.address import parse
from halimede.bench.control import request
from halimede.bench.errors import BenchError
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.process_tree import tree

_STARTED = re.compile(r"Started (HTTPService|GRPCInferenceService) at ([0-9.]+:\d+)")
_STARTS_WITHIN_S = 300
_STOPS_WITHIN_S = 30
_CONFIG = "config.pbtxt"


@dataclass(frozen=True, slots=True)
class Served:
    """A running server.

    Attributes:
        http, grpc: where it serves, as `host:port`.
        pid: of its process.
    """

    http: str
    grpc: str
    pid: int

    def memory_mb(self) -> float:
        """Memory of it and of all its processes, in MB; what several share counts once."""
        return sum(_proportional_bytes(one.pid) for one in tree(self.pid)) / 1e6


def _proportional_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:  # it has ended, or is another user's
        return 0
    found = re.search(r"^Pss: +(\d+) kB$", text, re.M)
    return int(found[1]) * 1024 if found else 0


@contextmanager
def serving(
    repository: Path, configs: Mapping[str, ModelConfig], models: Sequence[str], flags: Sequence[str]
) -> Iterator[Served]:
    """A server on free ports of this machine that has loaded these models, and what they are made of.

    Raises:
        BenchError: it does not start; the text has the errors of its log.
    """
    with tempfile.TemporaryDirectory(prefix="halimede-tune-") as directory:
        copy = Path(directory) / "models"
        copy.mkdir()
        _link(repository, copy, configs)
        log_path = Path(directory) / "log"
        command = [
            sys.executable, "-m", "halimede", "serve", f"--model-repository={copy}",
            "--http-address=127.0.0.1", "--http-port=0", "--grpc-address=127.0.0.1", "--grpc-port=0",
            "--allow-metrics=false", "--model-control-mode=explicit",
            *(f"--load-model={name}" for name in models), *flags,
        ]  # fmt: skip
        with log_path.open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - this program, with the user's own flags
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield _await(process, log_path)
        finally:
            _stop(process)


def _link(repository: Path, copy: Path, configs: Mapping[str, ModelConfig]) -> None:
    """The repository as links, with a file of its own for each configuration that is given."""
    for model in repository.iterdir():
        if model.name not in configs or not model.is_dir():
            (copy / model.name).symlink_to(model.resolve())
            continue
        (copy / model.name).mkdir()
        for part in model.iterdir():
            if part.name != _CONFIG:
                (copy / model.name / part.name).symlink_to(part.resolve())
        text = text_format.MessageToString(configs[model.name])
        (copy / model.name / _CONFIG).write_text(text)


def _await(process: "subprocess.Popen[bytes]", log: Path) -> Served:
    """The server once it is ready."""
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while True:
        lines = log.read_text(errors="replace").rpartition("\n")[0]  # the last one may still be incomplete
        addresses = dict(_STARTED.findall(lines))
        if len(addresses) == 2 and _ready(addresses["HTTPService"]):
            return Served(addresses["HTTPService"], addresses["GRPCInferenceService"], process.pid)
        if process.poll() is not None:
            raise BenchError(f"The server does not start:\n{errors_of(log)}")
        if time.monotonic() > deadline:
            raise BenchError(f"The server has not started within {_STARTS_WITHIN_S} s:\n{errors_of(log)}")
        time.sleep(0.02)


def _ready(address: str) -> bool:
    try:
        return request(parse(address, 8000), "GET", "/v2/health/ready")[0] == 200
    except BenchError:
        return False


def errors_of(log: Path) -> str:
    """The errors in a log, or its last lines."""
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join([line for line in lines if line.startswith("E")][-3:] or lines[-3:])


def _stop(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOPS_WITHIN_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
