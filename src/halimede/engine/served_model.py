"""What front ends, metrics, the lifecycle and ensembles need of a loaded version, whatever answers its requests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.signature import Signature
from halimede.core.requests import InferRequest
from halimede.engine.statistics import ModelStatistics


@dataclass(frozen=True, slots=True)
class InstanceActivity:
    """What one instance of a model is doing now.

    Attributes:
        name: its name in the model, such as ``digits_0``.
        device: ``cpu`` or ``gpu:N``.
        place: where it runs: ``event loop``, ``thread``, ``server process`` or ``process PID``.
        state: ``idle``, ``running``, ``restarting``, ``failed``, or ``passive`` for one that gets no requests.
        requests: requests that it is executing; for a batch on a thread of the server, batches.
        reason: why it failed, or what it has been doing for too long; "" for neither.
        slow_s: seconds that its execution has been running, if that is too long; else 0.
    """

    name: str
    device: str
    place: str
    state: str
    requests: int = 0
    reason: str = ""
    slow_s: float = 0


class ServedModel(Protocol):
    """A loaded version of a model: one that is run, or an ensemble. Lives on the event loop."""

    @property
    def name(self) -> str:
        """What clients call the model."""

    @property
    def identifier(self) -> str:
        """Its name in the server, which no other model has: ``<repository>::<name>`` with namespaces of models."""

    @property
    def version(self) -> int:
        """The version."""

    @property
    def directory(self) -> Path:
        """Where its files are: `config.pbtxt`, and the directories of its versions."""

    @property
    def config(self) -> ModelConfig:
        """The final configuration."""

    @property
    def signature(self) -> Signature:
        """What it takes and gives."""

    @property
    def labels(self) -> Mapping[str, list[str]]:
        """Output → class labels."""

    @property
    def statistics(self) -> ModelStatistics:
        """What is counted of it."""

    @property
    def inflight(self) -> int:
        """Requests that were accepted and have no final response yet."""

    @property
    def takes_device_tensors(self) -> bool:
        """Whether each instance takes inputs, and leaves outputs, in the memory of its device."""

    @property
    def pending(self) -> int:
        """Requests that wait for an execution."""

    def activity(self) -> Sequence[InstanceActivity]:
        """What each of its instances is doing; none for an ensemble."""

    @property
    def healthy(self) -> bool:
        """Whether everything that it runs on is there."""

    async def ready(self) -> tuple[bool, str]:
        """Whether it says that it is ready, and if not, why."""

    def infer(self, request: InferRequest) -> None:
        """Answer the request through its `respond`: with responses, or with the error that stopped it."""

    @property
    def sequences(self) -> int:
        """Sequences that are under way."""

    def continues(self, request: InferRequest) -> bool:
        """Whether the request goes on with a sequence that is under way."""

    def succeed(self, predecessor: "ServedModel") -> None:
        """Take the place of another version, which still gets the requests of sequences that are under way there."""

    def stop(self) -> None:
        """Accept no more requests but those of sequences that are under way."""

    def end_sequences(self) -> None:
        """Let sequences end with the requests that they have, as no more can come."""

    async def drained(self) -> None:
        """Return when every accepted request has its final response, and every sequence is over."""

    async def close(self) -> None:
        """Give everything back. Nothing may be in flight."""


Find = Callable[[str, int], ServedModel]
"""``find(name, version)`` gives the loaded model, for -1 that of the highest ready version, or raises NotFoundError
or UnavailableError."""
