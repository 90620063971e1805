"""Three times the requests that a model can serve: how many are answered in their time, and does memory stay flat?

    python -m scripts.overload SECONDS

Requests come at random times, whether those before them are answered or not, for SECONDS with each kind of queue:
bounded by `max_queue_size`, with the model's timeout, with the requests' own, and, to compare with, a plain one. With
each but the last, answers within 200 ms must be at least 90% of what the model can serve, and the server's memory must
be what it was after the first third. Otherwise the exit status is 1.
"""

import asyncio
import random
import re
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.server import ServerProcess, start_server

EXECUTION_MS = 20
ROWS = 8
CAPACITY = ROWS * 1000 // EXECUTION_MS
"""Requests a second."""

TIMES = 3
IN_TIME = 0.2
"""Seconds in which an answer is of use."""

GOODPUT = 0.9
MORE_MEMORY = 32 << 20

_CONFIG = f"""
backend: "identity"
max_batch_size: {ROWS}
input {{ name: "IN" data_type: TYPE_FP32 dims: [ 256 ] }}
output {{ name: "OUT" data_type: TYPE_FP32 dims: [ 256 ] }}
parameters {{ key: "execute_delay_ms" value {{ string_value: "{EXECUTION_MS}" }} }}
"""
_DATA = ",".join(["1"] * 256)


@dataclass(frozen=True, slots=True)
class Queue:
    """A kind of queue: its policy, the parameters of the requests, and whether it has to keep up."""

    name: str
    policy: str
    parameters: str = "{}"
    keeps_up: bool = True


QUEUES = (
    Queue("bounded", f"default_queue_policy {{ max_queue_size: {4 * ROWS} }}"),
    Queue("timeout", f"default_queue_policy {{ default_timeout_microseconds: {int(IN_TIME * 1e6)} }}"),
    Queue("requests", "", f'{{"timeout": {int(IN_TIME * 1e6)}}}'),
    Queue("plain", "", keeps_up=False),
)


@dataclass(slots=True)
class Outcome:
    """What became of the requests.

    Attributes:
        in_time, late: seconds that answers took, of those within 200 ms and of others.
        refused: seconds that refusals took.
        memory: bytes that the server took after each third.
    """

    in_time: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)


class Clients:
    """Clients that send to one model, each on a connection that is free."""

    def __init__(self, address: str, queue: Queue) -> None:
        self._host, _, self._port = address.partition(":")
        body = (
            f'{{"parameters": {queue.parameters}, '
            f'"inputs": [{{"name": "IN", "datatype": "FP32", "shape": [1, 256], "data": [{_DATA}]}}]}}'
        )
        path = f"/v2/models/{queue.name}/infer"
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        self._request = (head + body).encode()
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._asking: set[asyncio.Task[None]] = set()
        self.outcome = Outcome()

    async def send(self, rate: float, seconds: float) -> None:
        """Send requests at random times, so many a second."""
        end = due = time.monotonic()
        end += seconds
        while due < end:
            due += random.expovariate(rate)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(self._ask())
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def finish(self) -> None:
        """Wait for all answers."""
        if self._asking:
            await asyncio.wait(self._asking)
        for _, writer in self._free:
            writer.close()

    async def _ask(self) -> None:
        began = time.monotonic()
        if self._free:
            reader, writer = self._free.pop()
        else:
            reader, writer = await asyncio.open_connection(self._host, int(self._port))
        writer.write(self._request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        assert length is not None
        await reader.readexactly(int(length[1]))
        took = time.monotonic() - began
        self._free.append((reader, writer))
        if not head.startswith(b"HTTP/1.1 200 "):
            self.outcome.refused.append(took)
        elif took <= IN_TIME:
            self.outcome.in_time.append(took)
        else:
            self.outcome.late.append(took)


async def measure(server: ServerProcess, queue: Queue, seconds: float) -> Outcome:
    """What becomes of the requests at three times the rate, once a second of it is over."""
    clients = Clients(server.http, queue)
    await clients.send(TIMES * CAPACITY, 1)
    memory = clients.outcome.memory
    clients.outcome = Outcome(memory=memory)
    for _ in range(3):
        await clients.send(TIMES * CAPACITY, seconds / 3)
        text = await asyncio.to_thread(lambda: server.get("/metrics", server.metrics)[1].decode())
        resident = re.search(r"^halimede_resident_memory_bytes (\d+)", text, re.MULTILINE)
        assert resident is not None
        memory.append(int(resident[1]))
    await clients.finish()
    return clients.outcome


def percentile(times: list[float], share: float) -> str:
    """A quantile in milliseconds."""
    return f"{1000 * sorted(times)[int(share * (len(times) - 1))]:.0f} ms" if times else "-"


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """The exit status."""
    seconds = float(sys.argv[1])
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        for queue in QUEUES:
            model = Path(directory, queue.name)
            (model / "1").mkdir(parents=True)
            (model / "config.pbtxt").write_text(f"{_CONFIG} dynamic_batching {{ {queue.policy} }}")
        with start_server(directory) as server:
            say(f"{TIMES * CAPACITY} requests a second, of which the model can serve {CAPACITY}")
            say("queue      in time  late   p99 of answers  p50 of refusals  memory")
            for queue in QUEUES:
                outcome = asyncio.run(measure(server, queue, seconds))
                goodput = len(outcome.in_time) / seconds / CAPACITY
                late = len(outcome.late) / seconds / CAPACITY
                grown = outcome.memory[-1] - outcome.memory[0]
                say(
                    f"{queue.name:9} {goodput:8.0%} {late:5.0%} {percentile(outcome.in_time + outcome.late, 0.99):>15} "
                    f"{percentile(outcome.refused, 0.5):>16}  {grown / (1 << 20):+.1f} MiB"
                )
                failed |= queue.keeps_up and (goodput < GOODPUT or grown > MORE_MEMORY)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
