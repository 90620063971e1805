"""On which node an instance goes: by itself, so that a variant's instances are apart and GPUs are not scattered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from halimede.hosting.substrates.ray.launch import Shape

_LACKING = 1e-6
"""Ray counts in ten-thousandths."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node that is alive.

    Attributes:
        id: its id.
        address: where its instances listen.
        total: resource → how much there is; ``CPU``, ``GPU``, ``memory`` and the node's own.
        free: resource → how much nobody has.
        variants: variant → how many of its instances are there.
    """

    id: str
    address: str
    total: Mapping[str, float]
    free: Mapping[str, float]
    variants: Mapping[str, int] = field(default_factory=dict)

    def fits(self, shape: Shape) -> bool:
        """Whether there is room now."""
        return _holds(self.free, shape)

    def could_fit(self, shape: Shape) -> bool:
        """Whether there would be room if nobody else had any."""
        return _holds(self.total, shape)


def _holds(amounts: Mapping[str, float], shape: Shape) -> bool:
    return all(amounts.get(name, 0.0) + _LACKING >= wanted for name, wanted in shape.bundle().items())


def choose_node(nodes: Sequence[Node], shape: Shape, variant: str, *, spread: bool) -> Node | None:
    """The node for an instance; None if there is room on none.

    Args:
        nodes: those that are alive.
        shape: what the instance asks for.
        variant: whose instances are to be apart.
        spread: put them apart; otherwise nodes are filled one after the other, so that others can be given back.
    """
    able = [node for node in nodes if node.fits(shape)]
    if not able:
        return None

    def rank(node: Node) -> tuple[float, ...]:
        # what has no use for GPUs keeps away from them, and what has takes what is left of a node that is in use
        gpus = node.free.get("GPU", 0.0) if shape.gpus else node.total.get("GPU", 0.0)
        together, cpus = node.variants.get(variant, 0), node.free.get("CPU", 0.0)
        return (together, gpus, -cpus) if spread else (gpus, cpus, together)

    return min(able, key=lambda node: (*rank(node), node.id))


def shortage(nodes: Sequence[Node], shape: Shape) -> str:
    """Why there is no room, for a user."""
    wanted = _told(shape.bundle())
    if not nodes:
        return f"no node of the Ray cluster is alive; the instance asks for {wanted}"
    able = [node for node in nodes if node.could_fit(shape)]
    if not able:
        largest = max(nodes, key=lambda node: (node.total.get("GPU", 0.0), node.total.get("CPU", 0.0)))
        return (
            f"none of the {len(nodes)} nodes of the Ray cluster has {wanted}; the largest has "
            f"{_told({name: largest.total.get(name, 0.0) for name in shape.bundle()})}"
        )
    free = max(
        able, key=lambda node: min(node.free.get(name, 0.0) / of for name, of in shape.bundle().items())
    )
    return (
        f"the Ray cluster has no room for {wanted}: {len(able)} of its {len(nodes)} nodes could hold it, and the best "
        f"of them has {_told({name: free.free.get(name, 0.0) for name in shape.bundle()})} free"
    )


def _told(amounts: Mapping[str, float]) -> str:
    texts = {"CPU": "CPU", "GPU": "GPU"}
    parts = [
        f"{amount / (1 << 30):.3g} GiB of memory"
        if name == "memory"
        else f"{amount:.3g} {texts.get(name, name)}"
        for name, amount in amounts.items()
    ]
    return " and ".join(parts) or "nothing"
