"""A server with small models, for all tests of `halimede bench`."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import numpy as np
import pytest

from halimede.bench.histogram import Histogram
from halimede.bench.results import Block, LevelResult
from tests.support.loops import LoopThread
from tests.support.server import ServerProcess, start_server

IDENTITY = """
backend: "identity" max_batch_size: 8
input {{ name: "INPUT0" data_type: {datatype} dims: {dims} }}
output {{ name: "OUTPUT0" data_type: {datatype} dims: {dims} }}
"""
REPEAT = """
backend: "repeat" model_transaction_policy { decoupled: true }
input [ { name: "IN" data_type: TYPE_INT32 dims: -1 },
        { name: "DELAY" data_type: TYPE_UINT32 dims: -1 },
        { name: "WAIT" data_type: TYPE_UINT32 dims: 1 } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: 1 }, { name: "IDX" data_type: TYPE_UINT32 dims: 1 } ]
"""
SEQUENCE = """
sequence_batching { max_sequence_idle_microseconds: 5000000
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } } }
"""
MODELS = {
    "numbers": IDENTITY.format(datatype="TYPE_FP32", dims=4),
    "varying": IDENTITY.format(datatype="TYPE_INT32", dims=-1),
    "texts": IDENTITY.format(datatype="TYPE_STRING", dims=1),
    "slow": IDENTITY.format(datatype="TYPE_FP32", dims=1)
    + 'parameters { key: "execute_delay_ms" value { string_value: "40" } }',
    "sequence": IDENTITY.format(datatype="TYPE_FP32", dims=1) + SEQUENCE,
    "repeat": REPEAT,
}


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with all of `MODELS`."""
    repository = tmp_path_factory.mktemp("models")
    for name, config in MODELS.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config)
    with start_server(repository, "--allow-sagemaker=true", "--sagemaker-port=0") as running:
        yield running


class Scripted(asyncio.Protocol):
    """A connection to an HTTP server that answers as the test says."""

    def __init__(self, script: "Script") -> None:
        self._script = script
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        script = self._script
        script.requests.append(data)
        if script.stall_s and len(script.requests) == script.stall_at:
            time.sleep(script.stall_s)  # sleeps: the stall of a server
        for part in script.answer:
            self._transport.write(part)


class Script:
    """How a `Scripted` server answers: `stall_at` is the number of the request before which it sleeps."""

    def __init__(self, *answer: bytes, stall_at: int = 0, stall_s: float = 0.0) -> None:
        self.answer = answer
        self.stall_at = stall_at
        self.stall_s = stall_s
        self.requests: list[bytes] = []


@contextmanager
def scripted(script: Script) -> Iterator[str]:
    """Where a server listens that answers so."""
    with LoopThread() as loop:

        async def listen() -> asyncio.Server:
            return await asyncio.get_running_loop().create_server(lambda: Scripted(script), "127.0.0.1", 0)

        listener = loop.run(listen())
        yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        loop.call(listener.close)


def level(
    latencies_ms: list[float], *, figure: float = 1, seconds: float = 1.0, failures: int = 0
) -> LevelResult:
    """A result with these latencies in each of ten blocks."""
    values = (np.array(latencies_ms) * 1e6).astype(np.int64)
    one = Histogram.of(values)
    blocks = tuple(Block(seconds / 10, one, 0, one.count) for _ in range(10))
    merged = Histogram.merged(block.latency for block in blocks)
    return LevelResult(
        f"{figure:g} at once",
        figure,
        False,
        blocks,
        True,
        merged,
        merged,
        merged,
        Histogram.empty(),
        {"refused": failures} if failures else {},
    )
