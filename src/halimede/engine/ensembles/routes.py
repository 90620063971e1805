"""The part of a plan that a request for certain outputs takes, compiled for running.

A tensor that a decoupled step writes exists once for each of its responses. Each response begins an *iteration*: the
steps that read its tensors, and those that read theirs, run once in it. A decoupled step inside of an iteration begins
iterations in turn, so that they nest. All iterations on the way to an output lie on one line: a plan in which a step
would have to join tensors of two decoupled steps, neither of which is behind the other, is refused at load. The *depth*
of a tensor or step is therefore all there is to say of which iterations it belongs to; 0 is the request itself.
A step reads tensors of its own depth and of lesser ones, which are then the same for many of its runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from halimede.config.signature import TensorSpec


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step of an ensemble, as its configuration and its model tell.

    Attributes:
        number: its place in the configuration.
        model_name: the model.
        model_version: its version, -1 for the highest that is ready.
        decoupled: the model may give any number of responses.
        batched: the model has a batch dimension.
        inputs: input of the model → ensemble tensor.
        outputs: output of the model → ensemble tensor.
        dims: input of the model → its dims, without batch dimension.
    """

    number: int
    model_name: str
    model_version: int
    decoupled: bool
    batched: bool
    inputs: dict[str, str]
    outputs: dict[str, str]
    dims: dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """A tensor of an ensemble.

    Attributes:
        name: its name.
        batched: whoever writes it gives it a batch dimension.
        origin: numbers of the decoupled steps whose responses it depends on, outermost first.
    """

    name: str
    batched: bool
    origin: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class Slot:
    """A tensor's place in an iteration.

    Attributes:
        index: its number in the route.
        depth: of the iterations that have one.
        readers: who reads it in its own iteration.
        inner: who reads it in iterations inside of that.
        shared: more than one reader gets it, or one more than once.
    """

    index: int
    depth: int
    readers: list["Stage"] = field(default_factory=list)
    inner: list["Stage"] = field(default_factory=list)
    shared: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """What one input is read from.

    Attributes:
        name: the input of the model, or the output of the ensemble.
        slot: where the tensor lies.
        up: how many iterations further out that is.
        batched: the reader has a batch dimension.
        rebatched: the writer differs from it in that.
        dims: the reader's dims, without batch dimension.
    """

    name: str
    slot: Slot
    up: int
    batched: bool
    rebatched: bool
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """What happens once an iteration has certain tensors: the ensemble responds or, `Step`, a model runs.

    Attributes:
        index: its number in the route.
        depth: of the iterations in which it happens.
        sources: what it reads.
    """

    index: int
    depth: int
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Step(Stage):
    """A model that runs.

    Attributes:
        planned: the step in the plan.
        wanted: outputs of the model that somebody reads.
        targets: each of them with where it goes.
    """

    planned: PlannedStep
    wanted: tuple[str, ...]
    targets: tuple[tuple[str, Slot], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """The part of a plan that a request for certain outputs takes.

    Attributes:
        inputs: inputs of the ensemble that are read, each with its slot.
        steps: the steps, each behind those that it reads from.
        sink: the ensemble's response.
        missing: by depth, how many tensors each stage waits for in a new iteration: stage's index → count.
        joins: by depth, the tensors of outer iterations among those: stage's index, how far out, slot.
        reshaped: outputs that clients see under another shape.
    """

    inputs: tuple[tuple[str, Slot], ...]
    steps: tuple[Step, ...]
    sink: Stage
    missing: tuple[dict[int, int], ...]
    joins: tuple[tuple[tuple[int, int, Slot], ...], ...]
    reshaped: dict[str, TensorSpec]


def build_route(
    steps: Sequence[PlannedStep],
    tensors: dict[str, PlannedTensor],
    inputs: Sequence[str],
    outputs: Sequence[TensorSpec],
    batched: bool,
) -> Route:
    """The route to those outputs; steps that do not contribute to them are left out.

    Args:
        steps: all steps, each behind those that it reads from.
        tensors: name → tensor, all that steps read or write.
        inputs: names of the ensemble's inputs.
        outputs: the outputs that are wanted.
        batched: the ensemble has a batch dimension.
    """
    needed = {spec.name for spec in outputs}
    live: list[PlannedStep] = []
    for step in reversed(steps):
        if not needed.isdisjoint(step.outputs.values()):
            live.append(step)
            needed.update(step.inputs.values())
    live.reverse()
    slots = {
        name: Slot(index, len(tensor.origin))
        for index, (name, tensor) in enumerate((n, t) for n, t in tensors.items() if n in needed)
    }

    def sources(
        reads: Sequence[tuple[str, str, tuple[int, ...]]], reader_batched: bool
    ) -> tuple[Source, ...]:
        depth = max(slots[tensor].depth for _, tensor, _ in reads)
        return tuple(
            Source(
                name,
                slots[tensor],
                depth - slots[tensor].depth,
                reader_batched,
                tensors[tensor].batched != reader_batched,
                dims,
            )
            for name, tensor, dims in reads
        )

    stages: list[Stage] = []
    for index, step in enumerate(live):
        read = sources(
            [(name, tensor, step.dims[name]) for name, tensor in step.inputs.items()], step.batched
        )
        targets = tuple((name, slots[tensor]) for name, tensor in step.outputs.items() if tensor in slots)
        wanted = tuple(name for name, _ in targets)
        stages.append(Step(index, _depth(read), read, step, wanted, targets))
    read = sources([(spec.name, spec.name, spec.backend_dims) for spec in outputs], batched)
    sink = Stage(len(live), _depth(read), read)
    for stage in (*stages, sink):
        _connect(stage)
    depths = range(sink.depth + 1)
    return Route(
        tuple((name, slots[name]) for name in inputs if name in slots),
        tuple(stage for stage in stages if isinstance(stage, Step)),
        sink,
        tuple(
            {stage.index: len(_slots(stage)) for stage in (*stages, sink) if stage.depth == depth}
            for depth in depths
        ),
        tuple(
            tuple(
                (stage.index, depth - slot.depth, slot)
                for stage in (*stages, sink)
                if stage.depth == depth
                for slot in _slots(stage)
                if slot.depth < depth
            )
            for depth in depths
        ),
        {spec.name: spec for spec in outputs if spec.reshaped},
    )


def _depth(sources: tuple[Source, ...]) -> int:
    return max(source.slot.depth for source in sources)


def _slots(stage: Stage) -> list[Slot]:
    """The slots that the stage reads, each once."""
    return list(dict.fromkeys(source.slot for source in stage.sources))


def _connect(stage: Stage) -> None:
    """Let the slots that the stage reads know of it."""
    for slot in _slots(stage):
        uses = sum(source.slot is slot for source in stage.sources)
        inner = slot.depth < stage.depth
        slot.shared = slot.shared or bool(slot.readers or slot.inner) or uses > 1 or inner
        (slot.inner if inner else slot.readers).append(stage)
