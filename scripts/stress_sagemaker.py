"""A multi-model endpoint under loads, invokes and unloads at once: is any answer wrong, stuck, or anything left?

    python -m scripts.stress_sagemaker MINUTES [--managed]

32 clients that know only SageMaker's container contract load, invoke, list and unload ONNX, Python and ensemble
archives, and broken ones, each as it likes. With `--managed` the server evicts by itself, within a budget that is far
too small for all. Every answer must be one that the contract allows at that moment, and right; in the end every model
can still be loaded, invoked and unloaded, and descriptors, memory and processes are what they were. Otherwise the exit
status is 1.
"""

import argparse
import hashlib
import http.client
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import tritonclient.http as httpclient
from onnx import TensorProto, helper, numpy_helper

from scripts.soak import Family, Usage, measure
from scripts.soaking import say
from tests.python_models.support import FLOATS, Array, answering, http_inputs, python_model
from tests.support.server import ServerProcess, start_server

CLIENTS = 32
PATIENCE = 60.0
"""Seconds after which an answer counts as lost."""

SETTLING = 5.0
"""Seconds in which the server may give back what the last requests needed."""

MORE_DESCRIPTORS = 8
MORE_MEMORY = 16 << 20
"""What the server may have more at the end than after the first minute, both times without models, in bytes."""

BALLAST = 1_000_000
"""Elements of a weight that makes an ONNX model take 4 MB."""

MANAGED = ("--model-control-mode=ondemand", "--model-memory-budget=200MB")
EXPLICIT = ("--model-control-mode=explicit",)

_BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="


@dataclass(frozen=True, slots=True)
class Archive:
    """A model as the platform brings it.

    Attributes:
        number: what tells it from the others; its output is its input and that.
        key: the name under which it is loaded.
        target: the name by which the clients of the platform know it, "" for none.
        url: where it was extracted.
        broken: it cannot be loaded.
    """

    number: int
    key: str
    target: str
    url: Path
    broken: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """What the platform sends with each of its calls."""
        return {"X-Amzn-SageMaker-Target-Model": self.target} if self.target else {}


def write_archives(root: Path) -> list[Archive]:
    """Four of each kind, half of them with the model at the root, and a broken one."""
    writers: list[Callable[[Path, str, int], None]] = [write_onnx, write_python, write_ensemble]
    archives = []
    for number in range(1, 4 * len(writers) + 1):
        archive = _archive(root, number)
        write = writers[number % len(writers)]
        if number % 2 and write is not write_ensemble:
            write(archive.url.parent, archive.url.name, number)
        else:
            archive.url.mkdir(parents=True)
            write(archive.url, f"model_{number}", number)
        archives.append(archive)
    broken = Archive(0, _key(0), "broken.tar.gz", root / _key(0) / "model", broken=True)
    write_onnx(broken.url, "model", 0)
    next(broken.url.rglob("model.onnx")).write_bytes(b"no model")
    return [*archives, broken]


def _archive(root: Path, number: int) -> Archive:
    target = f"tenant_{number % 3}/m{number}.tar.gz" if number % 4 else ""
    return Archive(number, _key(number), target, root / _key(number) / "model")


def _key(number: int) -> str:
    return hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()


def write_onnx(directory: Path, name: str, number: int) -> None:
    """A model in ONNX that adds the number, and carries a weight that it does not need."""
    values = [
        numpy_helper.from_array(np.array([number], np.float32), "number"),
        numpy_helper.from_array(np.ones(BALLAST, np.float32), "ballast"),
    ]
    port = helper.make_tensor_value_info
    nodes = [
        helper.make_node("ReduceMin", ["ballast"], ["one"], keepdims=0),
        helper.make_node("Mul", ["number", "one"], ["more"]),
        helper.make_node("Add", ["IN", "more"], ["OUT"]),
    ]
    graph = helper.make_graph(
        nodes,
        "add",
        [port("IN", TensorProto.FLOAT, ["n"])],
        [port("OUT", TensorProto.FLOAT, ["n"])],
        values,
    )
    (directory / name / "1").mkdir(parents=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, directory / name / "1" / "model.onnx")
    (directory / name / "config.pbtxt").write_text(f'backend: "onnxruntime"\n{FLOATS}')


def write_python(directory: Path, name: str, number: int) -> None:
    """A Python model that adds the number."""
    python_model(directory, name, answering(f"x + {number}"), FLOATS)
    config = directory / name / "config.pbtxt"
    config.write_text(
        "".join(line for line in config.read_text().splitlines(True) if not line.startswith("name:"))
    )


def write_ensemble(directory: Path, name: str, number: int) -> None:
    """An ensemble of a Python model that adds one and one in ONNX that adds the rest."""
    write_python(directory, "first", 1)
    write_onnx(directory, "second", number - 1)
    steps = [_step("first", "IN", "between"), _step("second", "between", "OUT")]
    (directory / name / "1").mkdir(parents=True)
    text = f'platform: "ensemble"\n{FLOATS}ensemble_scheduling {{ step [ {", ".join(steps)} ] }}'
    (directory / name / "config.pbtxt").write_text(text)


def _step(model: str, source: str, target: str) -> str:
    return (
        f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "IN" value: "{source}" }} '
        f'output_map {{ key: "OUT" value: "{target}" }} }}'
    )


class Platform:
    """A connection that speaks the contract; it belongs to one thread."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=PATIENCE)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def load(self, archive: Archive) -> tuple[int, bytes]:
        """Status and body of a load."""
        document = json.dumps({"model_name": archive.key, "url": str(archive.url)})
        return self._ask("POST", "/models", document, archive.headers)

    def unload(self, archive: Archive) -> tuple[int, bytes]:
        """Status and body of an unload."""
        return self._ask("DELETE", f"/models/{archive.key}", None, archive.headers)

    def invoke(self, archive: Archive, given: Array, binary: bool) -> tuple[int, bytes, Array | None]:
        """Status and body of an invoke, and what its answer holds."""
        path, headers = f"/models/{archive.key}/invoke", dict(archive.headers)
        body: str | bytes
        if binary:
            body, size = httpclient.InferenceServerClient.generate_request_body(http_inputs(IN=given))
            headers["Content-Type"] = f"{_BINARY}{size}"
        else:
            tensor = {"name": "IN", "shape": list(given.shape), "datatype": "FP32", "data": given.tolist()}
            body = json.dumps({"inputs": [tensor]})
        self._connection.request("POST", path, body, headers)
        answer = self._connection.getresponse()
        data, kind = answer.read(), answer.headers.get("Content-Type", "")
        if answer.status != 200:
            return answer.status, data, None
        size = int(kind.removeprefix(_BINARY)) if kind.startswith(_BINARY) else None
        parse = httpclient.InferenceServerClient.parse_response_body
        return 200, data, parse(data, header_length=size).as_numpy("OUT")

    def list(self) -> dict[str, str]:
        """The models that are loaded: key → URL."""
        models: dict[str, str] = {}
        token = ""
        while True:
            _, data = self._ask("GET", "/models?limit=5" + (f"&next_page_token={token}" if token else ""))
            document = json.loads(data)
            models |= {model["modelName"]: model["modelUrl"] for model in document["models"]}
            token = document.get("nextPageToken", "")
            if not token:
                return models

    def get(self, archive: Archive) -> tuple[int, bytes]:
        """Status and body of a question for one model."""
        return self._ask("GET", f"/models/{archive.key}")

    def _ask(
        self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        self._connection.request(method, path, body, headers or {})
        answer = self._connection.getresponse()
        return answer.status, answer.read()


@dataclass
class Tally:
    """What came of the calls: how many of each kind and status, and what should not have been."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)


class Clients:
    """The clients, each in a thread, until they are stopped."""

    def __init__(self, server: ServerProcess, archives: list[Archive], managed: bool, seed: int) -> None:
        self.tally = Tally()
        self._server = server
        self._archives = archives
        self._managed = managed
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(seed + number),), daemon=True)  # noqa: S311
            for number in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> list[str]:
        """Let what is under way be answered: which clients are stuck."""
        self._stop.set()
        deadline = time.monotonic() + 2 * PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def _run(self, chance: random.Random) -> None:
        platform = Platform(self._server.sagemaker)
        while not self._stop.is_set():
            archive = chance.choice(self._archives)
            act = chance.choices([self._invoke, self._load, self._unload, self._look], [87, 10, 1, 2])[0]
            try:
                act(platform, archive, chance)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._note(f"{act.__name__} {error!r}", "", False)
                platform.close()
        platform.close()

    def _invoke(self, platform: Platform, archive: Archive, chance: random.Random) -> None:
        given = np.array([chance.randrange(1_000_000)] * chance.randint(1, 40), np.float32)
        status, data, got = platform.invoke(archive, given, chance.random() < 0.7)
        if got is None:
            # 507: all that could make room is in use
            allowed = (404, 507) if self._managed and not archive.broken else (404,)
            self._note("invoke", status, status in allowed, data)
        else:
            self._note("invoke", 200, np.array_equal(got, given + archive.number), repr(got).encode())

    def _load(self, platform: Platform, archive: Archive, _chance: random.Random) -> None:
        status, data = platform.load(archive)
        allowed = (400, 409) if archive.broken else (200, 409, 507)[: 2 + self._managed]
        self._note("load broken" if archive.broken else "load", status, status in allowed, data)

    def _unload(self, platform: Platform, archive: Archive, _chance: random.Random) -> None:
        status, data = platform.unload(archive)
        allowed = (404,) if archive.broken else (200, 404)
        self._note("unload", status, status in allowed, data)

    def _look(self, platform: Platform, archive: Archive, _chance: random.Random) -> None:
        listed = platform.list()
        known = {each.key for each in self._archives if not each.broken}
        self._note("list", 200, listed.keys() <= known, repr(listed).encode())
        status, data = platform.get(archive)
        right = status == 404 if status != 200 else json.loads(data)["modelName"] == archive.key
        self._note("get", status, right, data)

    def _note(self, what: str, status: int | str, right: bool, data: bytes = b"") -> None:
        with self._lock:
            self.tally.outcomes[f"{what} {status}"] += 1
            if not right:
                self.tally.wrong[f"{what} {status} {data[:300]!r}"] += 1


def stress(minutes: float, managed: bool, seed: int) -> list[str]:
    """What went wrong in so many minutes."""
    with tempfile.TemporaryDirectory() as directory:
        root, repository = Path(directory) / "models", Path(directory) / "repository"
        repository.mkdir()
        archives = write_archives(root)
        flags = [
            *(MANAGED if managed else EXPLICIT),
            "--allow-sagemaker=true",
            "--sagemaker-address=127.0.0.1",
        ]
        with start_server(repository, *flags, f"--sagemaker-model-directory={root}") as server:
            problems = _stress(server, archives, minutes, managed, seed)
            if server.stop() != 0:
                problems.append("the server did not stop as it should")
    return problems


def _stress(
    server: ServerProcess, archives: list[Archive], minutes: float, managed: bool, seed: int
) -> list[str]:
    family = Family(server)
    problems = _each_once(server, archives)
    warm = min(60.0, 60 * minutes / 3)
    problems += _load_on(server, family, archives, warm, managed, seed)
    before = _settled(server, family)
    say(f"after the first {warm:.0f} s, without models: {before}")
    problems += _load_on(server, family, archives, 60 * minutes - warm, managed, seed + CLIENTS)
    problems += _each_once(server, archives)
    after = _settled(server, family)
    say(f"at the end, without models: {after}")
    return problems + _growth(before, after)


def _load_on(
    server: ServerProcess, family: Family, archives: list[Archive], seconds: float, managed: bool, seed: int
) -> list[str]:
    """Let the clients do as they like for so long, and then unload everything: what went wrong."""
    end = time.monotonic() + seconds
    clients = Clients(server, archives, managed, seed)
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 60))
        now = measure(server, family)
        say(f"{_summary(clients.tally)}: {now}")
        if server.process.poll() is not None:
            return [f"the server ended:\n{server.log[-3000:]}"]
    problems = [f"{name} is stuck" for name in clients.stop()]
    problems += [f"{count} times: {what}" for what, count in clients.tally.wrong.most_common(20)]
    with closing(Platform(server.sagemaker)) as platform:
        for archive in archives:
            platform.unload(archive)
        if remaining := platform.list():
            problems.append(f"models are left: {remaining}")
    return problems


def _each_once(server: ServerProcess, archives: list[Archive]) -> list[str]:
    """Load, invoke and unload every model, twice: what went wrong."""
    problems = []
    given = np.arange(4, dtype=np.float32)
    with closing(Platform(server.sagemaker)) as platform:
        for archive in archives * 2:
            statuses = [platform.load(archive)[0]]
            invoked, _, got = platform.invoke(archive, given, binary=True)
            statuses += [invoked, platform.unload(archive)[0]]
            expected = [400, 404, 404] if archive.broken else [200, 200, 200]
            if statuses != expected or (got is not None and not np.array_equal(got, given + archive.number)):
                problems.append(f"by itself, model {archive.number} is answered with {statuses}, {got}")
    return problems


def _settled(server: ServerProcess, family: Family) -> Usage:
    time.sleep(SETTLING)
    return measure(server, family)


def _growth(before: Usage, after: Usage) -> list[str]:
    problems = []
    if after.descriptors > before.descriptors + MORE_DESCRIPTORS:
        problems.append(f"{after.descriptors - before.descriptors} more descriptors are open")
    if after.memory > before.memory + MORE_MEMORY:
        problems.append(f"the server takes {(after.memory - before.memory) >> 20} MiB more")
    if after.processes > before.processes:
        problems.append(f"{after.processes - before.processes} more processes are there")
    if after.shm > before.shm:
        problems.append("files are left in /dev/shm")
    return problems


def _summary(tally: Tally) -> str:
    return ", ".join(f"{what}: {count}" for what, count in sorted(tally.outcomes.items()))


def main() -> None:
    """Run, and exit with 1 if anything was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("minutes", type=float, nargs="?", default=5.0)
    parser.add_argument("--managed", action="store_true", help="the server evicts by itself")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    problems = stress(arguments.minutes, arguments.managed, arguments.seed)
    say("\n".join(problems) or "nothing was wrong")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
