"""Who has how much of the budget, and who was used longest ago. Knows neither time, nor processes, nor waiting."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from halimede.backends.states import SequenceStates
from halimede.repository.basis import Basis


@dataclass(slots=True, eq=False)
class Holding:
    """What one version of a model takes.

    Attributes:
        name: the model.
        version: the version.
        size: bytes: as expected while it is being loaded, as measured afterwards.
        basis: what it is loaded from, None if that cannot be compared.
        grown: bytes by which loading it has let the server's process grow, None if that could not be measured.
        processes: tells the worker processes that run it now.
        states: tells what its instances keep for sequences in the server's process.
        least: it counts at least so many bytes, of which some are reserved and not used yet.
        leaving: it takes no requests any more, and will be closed.
    """

    name: str
    version: int
    size: int
    basis: Basis | None = None
    grown: int | None = None
    processes: Callable[[], tuple[int, ...]] = tuple
    states: Callable[[], tuple[SequenceStates, ...]] = tuple
    least: int = 0
    leaving: bool = False

    @property
    def total(self) -> int:
        """Bytes, with those that are kept for sequences now."""
        return self.size + sum([states.byte_size for states in self.states()])


class Ledger:
    """The holdings of all models, and the order in which models were last used.

    Attributes:
        budget: bytes that all may hold together, None for any number.
    """

    def __init__(self, budget: int | None = None) -> None:
        self.budget = budget
        self._holdings: dict[Holding, None] = {}
        self._order: OrderedDict[str, None] = OrderedDict()

    def __iter__(self) -> Iterator[Holding]:
        return iter(self._holdings)

    @property
    def total(self) -> int:
        """Bytes that are held. May be asked from any thread."""
        return sum([holding.total for holding in list(self._holdings)])

    def free(self) -> int:
        """Bytes of the budget that nobody holds; less than 0 if models have grown beyond it."""
        assert self.budget is not None
        return self.budget - self.total

    def fits(self, size: int) -> bool:
        """Whether so many bytes more can be held."""
        return self.budget is None or size <= self.free()

    def add(self, holding: Holding) -> None:
        """Count a version."""
        self._holdings[holding] = None

    def remove(self, holding: Holding) -> None:
        """Count it no more."""
        self._holdings.pop(holding, None)

    def used(self, name: str) -> None:
        """The model is used now."""
        self._order[name] = None
        self._order.move_to_end(name)

    def forget(self, name: str) -> None:
        """The model is not loaded any more."""
        self._order.pop(name, None)

    def victim(self, idle: Callable[[str], bool]) -> str | None:
        """The model to evict first: of those that are idle, the one that was used longest ago. None if none is."""
        return next(filter(idle, self._order), None)
