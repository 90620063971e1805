"""Host policies (`--host-policy`): on which processors instances run, and of which NUMA node they take memory."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from halimede_worker.placement import place, release_memory


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """Where instances run.

    Attributes:
        cpus: numbers of the CPUs.
        node: the NUMA node of their memory; None for any.
    """

    cpus: tuple[int, ...]
    node: int | None = None

    def place(self) -> None:
        """Let the calling thread, and those that it starts, run there for good.

        Raises:
            OSError: the system refuses it.
        """
        place(self.cpus, self.node)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let the calling thread, and those that it starts meanwhile, run there.

        Raises:
            OSError: the system refuses it.
        """
        before = os.sched_getaffinity(0)
        try:
            self.place()
            yield
        finally:
            os.sched_setaffinity(0, before)
            if self.node is not None:
                release_memory()

    def document(self) -> dict[str, Any]:
        """What a worker process is told."""
        return {"cpus": list(self.cpus), "node": self.node}


def policy_of(policies: Mapping[str, HostPolicy], name: str, kind: str, device: int) -> HostPolicy | None:
    """The policy of an instance, None for none.

    Args:
        policies: those that there are, by name.
        name: the `host_policy` of its group; "" for the one that is meant for its kind.
        kind: ``KIND_CPU``, ``KIND_GPU`` or ``KIND_MODEL``.
        device: the number of its GPU.
    """
    if not name:
        name = {"KIND_CPU": "cpu", "KIND_MODEL": "model"}.get(kind, f"gpu_{device}")
    return policies.get(name)
