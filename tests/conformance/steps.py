"""The steps that a case is made of; each is taken with both servers and brings an answer, or None if it brings none."""

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message
from tritonclient.grpc import service_pb2_grpc

from benchmarks.errors import BenchmarkError
from tests.conformance.answers import Answer, flatten, members
from tests.conformance.servers import Subject
from tests.conformance.wire import WAIT_S, exchange, read_answer, request_bytes

PATIENCE_S = 20


class Step(Protocol):
    """What is done with a server."""

    def take(self, subject: Subject) -> Answer | None:
        """Do it: the answer, if there is one to compare."""


@dataclass(frozen=True, slots=True)
class Http:
    """A request over HTTP."""

    method: str
    path: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    metrics: bool = False

    def take(self, subject: Subject) -> Answer:
        """Its answer."""
        request = request_bytes(self.method, self.path, self.body, self.headers)
        return Bytes(request, self.method, self.metrics).take(subject)


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes sent to the port of HTTP, or of metrics, as they are."""

    request: bytes
    method: str = "POST"
    metrics: bool = False

    def take(self, subject: Subject) -> Answer:
        """The answer, or what became of the connection."""
        port = subject.server.metrics_port if self.metrics else subject.server.http_port
        try:
            return read_answer(*exchange(port, self.request, self.method))
        except (OSError, ValueError, EOFError, KeyError) as error:
            return {"no answer": type(error).__name__}


@dataclass(frozen=True, slots=True)
class Rpc:
    """A gRPC call with one message."""

    method: str
    message: Message
    metadata: tuple[tuple[str, str], ...] = ()

    def take(self, subject: Subject) -> Answer:
        """Its response, or its status."""
        call = getattr(service_pb2_grpc.GRPCInferenceServiceStub(subject.channel), self.method)
        try:
            response = call(self.message, metadata=self.metadata, timeout=WAIT_S)
        except grpc.RpcError as error:
            return {"code": error.code().name, "details": error.details()}
        return {"code": "OK", **dict(flatten(members(response), "response"))}


@dataclass(frozen=True, slots=True)
class Stream:
    """A ModelStreamInfer: all messages are sent at once, and the stream is half-closed."""

    messages: tuple[Message, ...]
    metadata: tuple[tuple[str, str], ...] = ()

    def take(self, subject: Subject) -> Answer:
        """All responses, those of different requests in the order of the requests' ids, and the status."""
        stub = service_pb2_grpc.GRPCInferenceServiceStub(subject.channel)
        call = stub.ModelStreamInfer(iter(self.messages), metadata=self.metadata, timeout=WAIT_S)
        responses: list[dict[str, Any]] = []
        end: Answer = {"code": "OK"}
        try:
            responses.extend(members(response) for response in call)
        except grpc.RpcError as error:
            end = {"code": error.code().name, "details": error.details()}
        responses.sort(key=lambda one: str(one.get("infer_response", {}).get("id", "")))
        return end | dict(flatten(responses, "responses"))


@dataclass(frozen=True, slots=True)
class Files:
    """Files of a model, written into a repository; None removes a file, or a directory with all that is in it."""

    model: str
    files: dict[str, str | bytes | None]
    further: str = ""

    def take(self, subject: Subject) -> None:
        """Write them."""
        repository = subject.further[self.further] if self.further else subject.repository
        for name, content in self.files.items():
            path = repository / self.model / name
            if content is None:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)


@dataclass(frozen=True, slots=True)
class Until:
    """A step that is repeated until its answer is as wanted, for 20 s at most; the last answer counts."""

    step: Step
    wanted: Callable[[Answer], bool]
    compared: bool = True

    def take(self, subject: Subject) -> Answer | None:
        """The last answer."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.step.take(subject) or {}
            if self.wanted(answer) or time.monotonic() > deadline:
                return answer if self.compared else None
            time.sleep(0.02)  # sleeps: until the next try; an answer that is never as wanted is compared too


@dataclass(frozen=True, slots=True)
class Settled:
    """A step that is repeated until its answer stays as it is: counts are written after the answers that they count."""

    step: Step
    for_s: float = 0.5

    def take(self, subject: Subject) -> Answer | None:
        """The answer that stayed."""
        deadline = time.monotonic() + PATIENCE_S
        last = self.step.take(subject)
        since = time.monotonic()
        while time.monotonic() < min(since + self.for_s, deadline):
            time.sleep(0.05)  # sleeps: until the next try
            answer = self.step.take(subject)
            if answer != last:
                last, since = answer, time.monotonic()
        return last


@dataclass(frozen=True, slots=True)
class Together:
    """Steps that are taken at the same time, each in a thread, begun so far apart that they arrive in that order."""

    steps: tuple[Step, ...]
    apart_s: float = 0.03

    def take(self, subject: Subject) -> Answer:
        """All their answers, each with the number of its step."""
        with ThreadPoolExecutor(len(self.steps)) as pool:
            begun = []
            for step in self.steps:
                begun.append(pool.submit(step.take, subject))
                time.sleep(self.apart_s)  # sleeps: until the request has arrived, which Triton does not tell
            taken = [one.result() or {} for one in begun]
        return {f"[{index}] {path}": value for index, one in enumerate(taken) for path, value in one.items()}


@dataclass(frozen=True, slots=True)
class Starts:
    """Another server of the same kind, with an empty repository and those flags."""

    flags: tuple[str, ...]

    def take(self, subject: Subject) -> Answer:
        """Whether it starts."""
        repository = subject.repository.parent / "empty"
        repository.mkdir(exist_ok=True)
        try:
            with subject.start(repository, arguments=self.flags, ready=False):
                return {"starts": True}
        except BenchmarkError:
            return {"starts": False}


@dataclass(frozen=True, slots=True)
class Placed:
    """A step made for a server, as it has the name of one of its repositories in it."""

    make: Callable[[Path], Step]
    further: str = ""

    def take(self, subject: Subject) -> Answer | None:
        """The answer to that step."""
        repository = subject.further[self.further] if self.further else subject.repository
        return self.make(repository).take(subject)


@dataclass(frozen=True, slots=True)
class Memory:
    """Shared memory of that name and size; of no size, it is removed."""

    name: str
    size: int = 0

    def take(self, subject: Subject) -> None:
        """Make it, of zeros."""
        path = Path("/dev/shm") / self.name
        path.unlink(missing_ok=True)
        if self.size:
            path.write_bytes(bytes(self.size))


@dataclass(frozen=True, slots=True)
class Only:
    """What a function leaves of a step's answer."""

    step: Step
    part: Callable[[Answer], Answer]

    def take(self, subject: Subject) -> Answer:
        """That part."""
        return self.part(self.step.take(subject) or {})
