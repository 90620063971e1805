"""What a user wants measured, made into a plan: the model is described by its server, and requests are made."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from halimede.bench import data, payloads
from halimede.bench.address import Address, parse
from halimede.bench.control import Control, GrpcControl, HttpControl, describe
from halimede.bench.errors import BenchError
from halimede.bench.model import Model, Tensor
from halimede.bench.payloads import Parameters, Payload
from halimede.bench.plan import Plan, Sequences
from halimede.bench.server_side import Statistics, by_version

_PORTS = {"http": 8000, "grpc": 8001}


class Kind(StrEnum):
    """Which protocol a server speaks."""

    TRITON = "triton"
    SAGEMAKER = "sagemaker"
    OPENAI = "openai"


@dataclass(frozen=True, slots=True)
class Workload:
    """What is to be measured.

    Attributes:
        kind: of the server.
        url: where it is; empty for this machine and the protocol's usual port.
        grpc: KServe over gRPC, otherwise over HTTP.
        model: its name.
        version: empty for the server's choice.
        endpoint: path or name of the endpoint, for SageMaker and OpenAI.
        streaming: requests go over a gRPC stream, or answers are server-sent events.
        making: how data is made.
        input_data: a file or directory; None if data is made.
        content_type: of a body from a file, for SageMaker.
        parameters: of each request.
        headers: of each request.
        sequences: requests belong to sequences.
        connections: at most so many.
        processes: that send the load; 0 for as many as half of the cores.
        timeout_s: a request without an answer for so long has failed.
        authorities: certificates that are trusted in place of the system's.
    """

    kind: Kind = Kind.TRITON
    url: str = ""
    grpc: bool = False
    model: str = ""
    version: str = ""
    endpoint: str = ""
    streaming: bool = False
    making: data.Making = field(default_factory=data.Making)
    input_data: Path | None = None
    content_type: str = "application/json"
    parameters: Parameters = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    sequences: Sequences | None = None
    connections: int = 1024
    processes: int = 0
    timeout_s: float = 60.0
    authorities: Path | None = None

    @property
    def address(self) -> Address:
        """Where the server is.

        Raises:
            BenchError: the URL is none.
        """
        port = _PORTS["grpc" if self.grpc else "http"]
        return parse(self.url or f"127.0.0.1:{port}", port, self.authorities)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A workload that is ready to be measured.

    Attributes:
        plan: what is sent.
        ask: the server's statistics; empty where it has none.
        rows: of each request.
        title: in a few words.
    """

    plan: Plan
    ask: Callable[[], Statistics]
    rows: int
    title: str


def prepare(workload: Workload) -> Prepared:
    """The plan of a workload.

    Raises:
        BenchError: the server cannot be reached, does not have the model, or the data does not fit.
    """
    if workload.kind is not Kind.TRITON:
        return _plain(workload)
    address = workload.address
    control: Control = (
        GrpcControl(address, workload.headers) if workload.grpc else HttpControl(address, workload.headers)
    )
    model = describe(control, workload.model, workload.version)
    model.check_batch(workload.making.batch)
    _check_streams(workload, model)
    streams = _streams(workload, model)
    made = tuple(tuple(_payload(workload, address, model, row) for row in stream) for stream in streams)
    try:
        control.statistics()
    except BenchError:
        ask: Callable[[], Statistics] = dict  # servers of KServe need not have any
    else:
        ask = _asking(control)
    protocol = "gRPC" if workload.grpc else "HTTP"
    plan = Plan(
        address,
        workload.grpc,
        workload.streaming,
        model.decoupled,
        made,
        tuple(workload.headers.items()) if workload.grpc else (),
        workload.sequences or (Sequences(20) if model.sequences else None),
        workload.connections,
        workload.timeout_s,
        processes(workload),
        workload.making.seed,
    )
    rows = workload.making.batch if model.max_batch_size else 1
    return Prepared(plan, ask, rows, f"{workload.model} over {protocol}")


def processes(workload: Workload) -> int:
    """How many processes send the load."""
    return workload.processes or max(1, min(8, len(os.sched_getaffinity(0)) // 2))


def _asking(control: Control) -> Callable[[], Statistics]:
    def ask() -> Statistics:
        return by_version(control.statistics())

    return ask


def _check_streams(workload: Workload, model: Model) -> None:
    if model.decoupled and not workload.streaming:
        raise BenchError(
            f"Model '{model.name}' is decoupled: it needs --streaming, over gRPC (-i grpc) for any number of "
            "responses, or over HTTP for generate_stream"
        )
    if model.sequences and workload.streaming and not workload.grpc:
        raise BenchError("Sequences go over a stream only with -i grpc")


def _streams(workload: Workload, model: Model) -> list[list[data.Row]]:
    making = workload.making
    if workload.input_data is None:
        return [data.make(model, making)]
    streams = data.read(workload.input_data, model, making)
    if len(streams) > 1 and workload.sequences is None and not model.sequences:
        streams = [[row for stream in streams for row in stream]]
    return streams


def _payload(workload: Workload, address: Address, model: Model, row: data.Row) -> Payload:
    parameters = workload.parameters
    if workload.grpc:
        if model.decoupled:
            parameters = {"triton_enable_empty_final_response": True, **parameters}
        return payloads.over_grpc(model, row, parameters)
    if workload.streaming:
        return payloads.generate_stream(address, model, row, parameters, workload.headers)
    return payloads.over_http(address, model, row, parameters, workload.headers)


def _plain(workload: Workload) -> Prepared:
    """Routes that are not KServe's."""
    if workload.grpc:
        raise BenchError(f"--service-kind {workload.kind} is spoken over HTTP; leave out -i grpc")
    if workload.sequences:
        raise BenchError(f"--service-kind {workload.kind} has no sequences")
    address = workload.address
    if workload.kind is Kind.OPENAI:
        path = f"/{workload.endpoint.lstrip('/')}" if workload.endpoint else "/v1/chat/completions"
        bodies = _openai_bodies(workload, path)
        content_type = "application/json"
    else:
        name = workload.endpoint
        path = f"/endpoints/{name}/invocations" if name and "/" not in name else name or "/invocations"
        bodies = _bodies(workload)
        content_type = workload.content_type
    headers = {"Content-Type": content_type, **workload.headers}
    made = tuple(payloads.plain(address, path, body, headers) for body in bodies)
    plan = Plan(
        address,
        grpc=False,
        streaming=workload.streaming,
        decoupled=False,
        payloads=(made,),
        connections=workload.connections,
        timeout_s=workload.timeout_s,
        processes=processes(workload),
        seed=workload.making.seed,
    )
    return Prepared(plan, dict, 1, f"{path} of {address.authority}")


def _bodies(workload: Workload) -> list[bytes]:
    if workload.input_data is None:
        raise BenchError(
            "--service-kind sagemaker needs --input-data: a file that is the body, or a directory of such"
        )
    path = workload.input_data
    try:
        files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
        bodies = [file.read_bytes() for file in files]
    except OSError as error:
        raise BenchError(f"{path} cannot be read: {error}") from None
    if not bodies:
        raise BenchError(f"{path} has no files")
    return bodies


def _openai_bodies(workload: Workload, path: str) -> list[bytes]:
    """Requests to a route in OpenAI's form, with made texts or from a file."""
    common: dict[str, Any] = {"model": workload.model, "stream": workload.streaming, **workload.parameters}
    if workload.input_data is not None:
        return [orjson.dumps({**common, **payload}) for payload in _openai_payloads(workload.input_data)]
    made = data.make(Model(workload.model, "", (Tensor("text", "BYTES", (1,)),), ()), workload.making)
    texts = [data.as_json(row[0])[0] for row in made]
    if path.endswith("/chat/completions"):
        return [orjson.dumps({**common, "messages": [{"role": "user", "content": text}]}) for text in texts]
    return [orjson.dumps({**common, "prompt": text}) for text in texts]


def _openai_payloads(path: Path) -> list[dict[str, Any]]:
    """The payloads of a file in perf_analyzer's form.

    Raises:
        BenchError: it cannot be read, or has another form.
    """
    try:
        document = orjson.loads(path.read_bytes())
        found = [payload for each in document["data"] for payload in each["payload"]]
    except (OSError, ValueError) as error:
        raise BenchError(f"{path} cannot be read: {error}") from None
    except (KeyError, TypeError):
        found = []
    if not found or not all(isinstance(payload, dict) for payload in found):
        raise BenchError(f'{path} needs the form {{"data": [{{"payload": [{{"messages": [...]}}]}}]}}')
    return found
