"""Instances in worker processes without a server around them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from halimede.backends.base import BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.batch import Batch
from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from halimede.config.signature import Signature
from halimede.core.clock import LoopClock
from halimede.core.requests import InferResponse
from halimede.core.sequences import ENDED
from halimede.workers.busy_wait import BusyWait
from halimede.workers.call_server import ModelCall
from halimede.workers.channel import Channel, Message
from halimede.workers.host import WorkerHost, WorkerName
from halimede.workers.instance import WorkerInstance
from halimede.workers.isolated_model import IsolatedModel
from halimede.workers.memory import PeerMemory
from halimede.workers.python_model import PythonModel
from halimede_worker.messages import wire
from tests.backends.sequences import Step, batch_of
from tests.support.loops import LoopThread
from tests.support.waiting import wait_until


class _Services:
    """Serves processes that only run batches, and remembers what they log."""

    def __init__(self) -> None:
        self.logged: list[str] = []
        self.logs = Event()

    def attach(
        self, name: WorkerName, memory: PeerMemory, control: Channel, on_call: Callable[[], None]
    ) -> "_Services":
        return self

    def message(self, message: Message) -> None:
        if message[0] == wire.LOG:
            self.logged.append(message[4])
            self.logs.set()

    def begun(self, pid: int) -> None:
        """It is not needed."""

    def serving(self) -> None:
        """It is not needed."""

    def infer(self, call: ModelCall) -> None:
        """It is not needed."""

    def handle(self, message: Message) -> None:
        """It is not needed."""

    def answer_here(self, targets: object) -> bool:
        """It is not needed."""
        return False

    def printed(self, data: bytes, error: bool) -> None:
        """It is not needed."""

    def close(self) -> None:
        """It is not needed."""


class Running:
    """A model with one instance in a worker process.

    Attributes:
        instance: the instance.
        signature: of the model.
    """

    def __init__(
        self, host: WorkerHost, services: _Services, instance: Instance, signature: Signature
    ) -> None:
        self.instance = instance
        self.signature = signature
        self._host = host
        self._services = services

    def run(self, *steps: Step) -> list[InferResponse]:
        """The responses to the requests, from one batch."""
        batch: Batch = batch_of(self.signature, *steps)
        streamed: dict[int, InferResponse] = {}
        done = Event()
        if self.signature.decoupled:

            def send(request: Any, response: InferResponse | None, final: bool) -> None:
                number = batch.requests.index(request)
                if response is not None:
                    streamed[number] = response
                if final and number == len(batch.requests) - 1:
                    done.set()

            batch.send = send
        self.instance.execute(batch)
        if not self.signature.decoupled:
            return list(batch.responses)
        assert done.wait(60)
        return [streamed[number] for number in range(len(steps))]

    def end(self, key: int, correlation_id: int | str = 0, reason: str = ENDED) -> None:
        """A sequence has ended."""

        async def tell() -> None:
            self.instance.end_sequence(key, correlation_id or key, reason)

        self._host.wait(tell())

    def restarted(self, kill: Callable[[], None]) -> None:
        """Return when the process that `kill` ends has a successor."""
        instance = self.instance
        assert isinstance(instance, WorkerInstance)
        before = instance.processes
        kill()
        wait_until(lambda: instance.healthy and instance.processes != before, "the next process")

    def next_log(self) -> str:
        """What was logged last, once something is."""
        assert self._services.logs.wait(60)
        return self._services.logged[-1]


@contextmanager
def running(
    directory: Path, text: str, code: str = "", busy_wait: BusyWait | None = None
) -> Iterator[Running]:
    """The model `m`, running; of that code if it is a Python model, else what is in `directory` already."""
    version = directory / "m" / "1"
    version.mkdir(parents=True, exist_ok=True)
    if code:
        text = f'backend: "python" {text}'
        head = (
            "import asyncio, threading\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n"
        )
        (version / "model.py").write_text(head + code)
    config = parse_text(text, "test")
    config.name = "m"
    source = ModelSource("m", 1, directory / "m", config)
    services = _Services()
    with LoopThread() as loop:
        host = WorkerHost(loop.loop, LoopClock(loop.loop), services, 10, busy_wait)
        make = PythonModel if code else IsolatedModel
        model = make(source, BackendOptions(), host)
        try:
            model.complete_config()
            normalise(config)
            instance = model.create_instance(InstanceSpec("m_0"))
            try:
                yield Running(host, services, instance, Signature.from_config(config))
            finally:
                instance.close()
        finally:
            model.close()
            host.close()
