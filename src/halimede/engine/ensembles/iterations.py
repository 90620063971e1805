"""What a request to an ensemble has at hand while it runs: the tensors of its iterations.

`routes` explains what an iteration is.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.ensembles.routes import Route, Source


class Sequence(NamedTuple):
    """What a request says of the sequence that it belongs to."""

    id: int | str
    start: bool
    end: bool


class Producer(Protocol):
    """A step whose responses begin iterations.

    Attributes:
        request: what its model was sent; None once it has its final response.
        held: requests that wait for room and stem from its responses.
    """

    request: InferRequest | None
    held: int

    @property
    def iteration(self) -> "Iteration":
        """Where it runs."""


class Iteration:
    """One iteration: the request itself, or one response of a decoupled step.

    Attributes:
        depth: how many iterations it is inside of.
        parent: the innermost of those; None for the request itself.
        producer: whose response began it; None for the request itself.
        tensors: slot's index → tensor, None for one that was left out; only those that were not taken yet.
        sequences: slot's index → the sequence that its readers go on with; None if no model has changed it.
        missing: stage's index → how many tensors it waits for.
        children: the iterations inside, in the order in which they began; those that are over are removed.
        closed: no more children will begin.
        result: the ensemble's response of this iteration, until it is sent.
    """

    __slots__ = (
        "children",
        "closed",
        "depth",
        "missing",
        "parent",
        "producer",
        "result",
        "sequences",
        "tensors",
    )

    def __init__(
        self, route: Route, parent: "Iteration | None" = None, producer: Producer | None = None
    ) -> None:
        depth = 0 if parent is None else parent.depth + 1
        self.depth: int = depth
        self.parent = parent
        self.producer = producer
        self.tensors: dict[int, Tensor | None] = {}
        self.sequences: dict[int, Sequence] | None = None
        self.missing = route.missing[depth].copy()
        self.children: deque[Iteration] = deque()
        self.closed = False
        self.result: InferResponse | None = None
        for stage, up, slot in route.joins[depth]:
            if slot.index in self.outer(up).tensors:
                self.missing[stage] -= 1

    def outer(self, up: int) -> "Iteration":
        """The iteration that many further out."""
        iteration = self
        for _ in range(up):
            parent = iteration.parent
            assert parent is not None, "no tensor lies further out than the request itself"
            iteration = parent
        return iteration

    def inner(self, depth: int) -> "Iterator[Iteration]":
        """The iterations inside of this one at that depth."""
        if self.depth == depth:
            yield self
        else:
            for child in self.children:
                yield from child.inner(depth)

    def abandon(self) -> None:
        """Let those inside go, which know this one: of a request that failed, some may be left."""
        while self.children:
            self.children.popleft().abandon()

    def take(self, source: Source) -> Tensor | None:
        """The tensor as its reader wants it, None if it was left out. Its only reader takes it away."""
        slot = source.slot
        tensors = self.outer(source.up).tensors if source.up else self.tensors
        tensor = tensors[slot.index] if slot.shared else tensors.pop(slot.index)
        if source.rebatched and tensor is not None:
            return rebatched(tensor, source.dims, source.batched)
        return tensor


def rebatched(tensor: Tensor, dims: tuple[int, ...], batched: bool) -> Tensor:
    """The tensor for a reader that has a batch dimension, or has none, other than its writer.

    A leading 1 is added or removed if that gives the reader's `dims`. Other shapes stay: the side without batch
    dimension may have it among its dims.
    """
    shape = tensor.shape
    if batched:
        return tensor.reshaped((1, *shape)) if _fits(shape, dims) else tensor
    return tensor.reshaped(shape[1:]) if shape[:1] == (1,) and _fits(shape[1:], dims) else tensor


def _fits(shape: tuple[int, ...], dims: tuple[int, ...]) -> bool:
    return len(shape) == len(dims) and all(dim in (-1, size) for dim, size in zip(dims, shape, strict=True))
