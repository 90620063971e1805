"""Where a node keeps what instances of a host need there.

DIRECTORY/HOST/NODE/lock            held, shared, by every actor of the node
DIRECTORY/HOST/NODE/isolates        whether programs can be given directories of their own there
DIRECTORY/HOST/NODE/store           extracted archives, which instances share
DIRECTORY/HOST/NODE/instances/ID    an instance's own: its models, its log
DIRECTORY/HOST/NODE/ports/NUMBER    held by the actor whose instance listens there
"""

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path

from halimede.core.ports import free_port
from halimede.hosting.substrates.program import can_isolate
from halimede.hosting.substrates.ray.launch import NodeSettings

_ANSWERS = ("no", "yes")


class NodeDirectory:
    """The directory of one node. Blocks for moments; several actors of a node have it at the same time.

    Attributes:
        path: the directory.
        store: where extracted archives are.
        instances: where instances have their directories.
    """

    def __init__(self, settings: NodeSettings, node: str) -> None:
        """Take part in a node's directory, and remove those of nodes that are no more.

        Raises:
            OSError: it cannot be made.
        """
        every = settings.directory / settings.host_id
        self.path = every / node
        self.store = self.path / "store"
        self.instances = self.path / "instances"
        self._ports = self.path / "ports"
        every.mkdir(parents=True, exist_ok=True, mode=0o700)
        guard = os.open(every, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(guard, fcntl.LOCK_EX)  # nobody removes what another is about to take part in
            for directory in (self.store, self.instances, self._ports):
                directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_SH)
            for other in every.iterdir():
                if other != self.path:
                    _remove_unused(other)
        finally:
            os.close(guard)
        self._held: dict[Path, int] = {}

    def free_port(self, address: str) -> int:
        """A port at which nobody listens, and which no other actor of this node has been given. It stays taken.

        Raises:
            OSError: there is none.
        """
        while True:
            port = free_port(address)
            file = self._ports / str(port)
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            self._held[file] = descriptor
            return port

    def isolates(self) -> bool:
        """Whether programs can be given directories of their own on this node; the first instance finds that out."""
        file = self.path / "isolates"
        with suppress(OSError):
            if (known := file.read_text()) in _ANSWERS:
                return known == _ANSWERS[True]
        can = can_isolate()
        file.write_text(_ANSWERS[can])
        return can

    def leave(self) -> None:
        """Take part no more."""
        for file, descriptor in self._held.items():
            file.unlink(missing_ok=True)
            os.close(descriptor)
        self._held.clear()
        os.close(self._lock)


def _remove_unused(directory: Path) -> None:
    """Remove the directory of a node that no actor is on: it was started anew under another name."""
    with suppress(OSError):
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(descriptor)
