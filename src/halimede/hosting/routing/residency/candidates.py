"""The instances that may take a model which none has, and the one that should."""

from collections.abc import Collection

import numpy as np

from halimede.hosting.routing.residency.holder import Holder
from halimede.hosting.routing.residency.placement_hash import Seeds, hash64, weights

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
"""[instances]: which of them."""


class Candidates:
    """The instances of a variant, in arrays, so that one of a thousand is chosen within some ten microseconds."""

    def __init__(self) -> None:
        """There are none yet."""
        self._holders: list[Holder] = []
        self._numbers: dict[Holder, int] = {}
        self._seeds: Seeds = np.empty(0, np.uint64)
        self._room = np.empty(0, np.int64)
        self._nodes = np.empty(0, np.uint64)
        self._able = np.empty(0, np.bool_)

    def add(self, holder: Holder) -> None:
        """An instance takes requests."""
        self._numbers[holder] = len(self._holders)
        self._holders.append(holder)
        self._seeds = np.append(self._seeds, np.uint64(hash64(holder.target.id)))
        self._room = np.append(self._room, holder.room_bytes)
        self._nodes = np.append(self._nodes, np.uint64(hash64(holder.node)))
        self._able = np.append(self._able, True)

    def remove(self, holder: Holder) -> None:
        """An instance takes none any more."""
        number = self._numbers.pop(holder)
        del self._holders[number]
        for later in self._holders[number:]:
            self._numbers[later] -= 1
        self._seeds = np.delete(self._seeds, number)
        self._room = np.delete(self._room, number)
        self._nodes = np.delete(self._nodes, number)
        self._able = np.delete(self._able, number)

    def room_changed(self, holder: Holder) -> None:
        """An instance has another amount of memory for models."""
        number = self._numbers.get(holder)
        if number is not None:
            self._room[number] = holder.room_bytes

    def choose(
        self,
        model: str,
        memory_bytes: int,
        with_files: Collection[Holder],
        nodes: Collection[str],
        without: Collection[Holder] = (),
    ) -> Holder | None:
        """The instance that should load a model; None if all are draining, and one that refuses if the others do.

        One that need not unload another model for it comes before those that must. Among equals, one that has the files
        comes first, then one on a machine that has the archive, then the one that the model's name says.

        Args:
            model: the model.
            memory_bytes: what it is expected to take.
            with_files: instances that have its files.
            nodes: machines that have its archive.
            without: instances that are not meant.
        """
        able = self._able.copy()
        able[self._of(without)] = False
        having = np.zeros(len(able), np.bool_)
        having[self._of(with_files)] = True
        near = np.isin(self._nodes, [hash64(node) for node in nodes]) if nodes else having
        refusing: Holder | None = None
        while able.any():
            holder = self._choose(model, memory_bytes, able, (having, near))
            number, target = self._numbers[holder], holder.target
            if not (target.draining or target.refuses):
                return holder
            able[number] = False
            if target.draining:
                self._able[number] = False  # it is about to go
            else:
                refusing = refusing or holder
        return refusing

    def _of(self, holders: Collection[Holder]) -> list[int]:
        return [self._numbers[holder] for holder in holders]

    def _choose(self, model: str, memory_bytes: int, able: Mask, preferred: tuple[Mask, ...]) -> Holder:
        roomy = able & (self._room > memory_bytes)
        if not roomy.any():
            roomy = able
        for each in preferred:
            chosen = roomy & each
            if chosen.any():
                return self._first(model, chosen)
        return self._first(model, roomy)

    def _first(self, model: str, among: Mask) -> Holder:
        numbers = among.nonzero()[0]
        return self._holders[int(numbers[weights(model, self._seeds[numbers]).argmax()])]
