"""The slots that sequences may have."""

import heapq

from halimede.engine.scheduling.sequences.slots import Lane, Slot


class FreeSlots:
    """The free slots of all instances: the lowest index first, of these the one that has been free longest."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int, Slot]] = []  # a heap
        self._soon: dict[Slot, None] = {}  # the last request of its sequence is under way
        self._freed = 0

    def add(self, slot: Slot) -> None:
        """No sequence holds the slot any more."""
        if slot.request is not None and not slot.lane.in_rows:
            self._soon[slot] = None
            return
        self._freed += 1
        heapq.heappush(self._free, (slot.index, self._freed, slot))

    def emptied(self, slot: Slot) -> None:
        """Nothing is under way in the slot any more."""
        if slot in self._soon:
            del self._soon[slot]
            self.add(slot)

    def next(self) -> Slot | None:
        """Take the best slot out, None if there is none."""
        if self._free:
            return heapq.heappop(self._free)[-1]
        if self._soon:
            slot = next(iter(self._soon))
            del self._soon[slot]
            return slot
        return None

    def withdraw(self, lane: Lane) -> None:
        """Take out all slots of an instance."""
        self._free = [entry for entry in self._free if entry[-1].lane is not lane]
        heapq.heapify(self._free)
        self._soon = {slot: None for slot in self._soon if slot.lane is not lane}
