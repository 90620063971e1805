import re
from pathlib import Path

import pytest

import halimede
from halimede.frontends.profiling.stages import (
    _RULES,
    COMPUTE,
    GATHER,
    HOP,
    OTHER,
    PARSE,
    SCHEDULE,
    SOCKET,
    STAGES,
    WRITE,
    Frame,
    stage_of,
)

PACKAGE = Path(halimede.__file__).parent
LOOP = Frame("/usr/lib/python3.11/asyncio/runners.py", "Runner.run")
RECEIVED = Frame(f"{PACKAGE}/frontends/http/transport/protocol.py", "HttpProtocol.data_received")
RUN = Frame(f"{PACKAGE}/workers/instance.py", "WorkerInstance.run")


def own(file: str, function: str) -> Frame:
    return Frame(f"{PACKAGE}/{file}", function)


@pytest.mark.parametrize(
    ("innermost", "stage"),
    [
        (own("frontends/http/transport/protocol.py", "HttpProtocol._receive_heads"), SOCKET),
        (own("frontends/http/transport/protocol.py", "HttpProtocol.write"), WRITE),
        (own("frontends/http/codec/request.py", "RequestDecoder.decode"), PARSE),
        (own("frontends/http/codec/response.py", "encode_response"), WRITE),
        (own("frontends/grpc/transport/connection.py", "GrpcProtocol._parse"), SOCKET),
        (own("frontends/grpc/transport/flow.py", "Sender._flush"), WRITE),
        (own("frontends/grpc/transport/call.py", "Call.reply"), WRITE),
        (own("frontends/grpc/codec_request.py", "decode"), PARSE),
        (own("engine/scheduling/batching.py", "Scheduler._look"), SCHEDULE),
        (own("engine/scheduling/instances.py", "Instance.run"), HOP),
        (own("backends/batch.py", "Batch.gather"), GATHER),
        (own("backends/onnx/bound.py", "BoundRuns.execute"), COMPUTE),
        (own("workers/channel.py", "Channel.send"), HOP),
        (own("frontends/relay/link.py", "Link.flush"), HOP),
        (own("frontends/metrics.py", "Metrics.render"), OTHER),
    ],
)
def test_function_belongs_to_its_stage(innermost: Frame, stage: str) -> None:
    assert stage_of([innermost, RECEIVED, LOOP]) == stage


def test_what_all_stages_use_belongs_to_who_called_it() -> None:
    tensor = own("core/tensors.py", "Tensor.data")
    library = Frame("/site-packages/numpy/core/numeric.py", "asarray")
    assert stage_of([library, tensor, RUN, RECEIVED, LOOP]) == HOP
    assert stage_of([tensor, own("backends/batch.py", "Batch.gather"), LOOP]) == GATHER


def test_event_loop_itself_is_of_the_sockets_and_threads_of_others_are_not() -> None:
    assert stage_of([LOOP, own("cli/serve.py", "run")]) == SOCKET
    assert stage_of([Frame("/usr/lib/python3.11/threading.py", "Thread.run")]) == OTHER
    assert stage_of([]) == OTHER


def test_code_of_a_model_in_the_server_computes() -> None:
    execute = own("worker_site/halimede_worker/execution.py", "Executions._execute")
    outer = (own("workers/in_server/worker.py", "ServerWorker.run_here"), LOOP)
    model = Frame("/models/m/1/model.py", "TritonPythonModel.execute")
    assert stage_of([model, execute, *outer]) == COMPUTE
    assert stage_of([execute, *outer]) == HOP


def test_every_rule_is_of_code_that_there_is() -> None:
    functions: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        names = re.findall(r"^ *def (\w+)", path.read_text(), re.M)
        functions[str(path.relative_to(PACKAGE))] = [*names, ""]
    for file, function, stage in _RULES:
        found = [name for path, names in functions.items() if file.match(path) for name in names]
        assert any(function.search(name) for name in found), (file.pattern, function.pattern, stage)
    assert {stage for _, _, stage in _RULES} == set(STAGES)
