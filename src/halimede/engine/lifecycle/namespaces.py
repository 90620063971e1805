"""The models that lie outside the repositories, in archives, and which model a name means."""

from collections.abc import Container
from pathlib import Path

from halimede.core.errors import AlreadyExistsError
from halimede.repository.namespace import Namespace


class Namespaces:
    """The archives that the server knows. Lives on the event loop."""

    def __init__(self) -> None:
        self._of: dict[str, Namespace] = {}

    def add(self, namespace: Namespace, taken: Container[str] = ()) -> None:
        """Know the models of an archive.

        Args:
            namespace: the archive.
            taken: names that other models have.

        Raises:
            AlreadyExistsError: a model's name in the server is taken.
        """
        for name in namespace.directories:
            if name in self._of or name in taken:
                raise AlreadyExistsError(f"there is a model '{name}' already")
        self._of.update(dict.fromkeys(namespace.directories, namespace))

    def remove(self, namespace: Namespace) -> None:
        """Forget the models of an archive."""
        for name in namespace.directories:
            del self._of[name]

    def find(self, name: str) -> Namespace | None:
        """The archive with the model of that name in the server, None for a model of the repositories."""
        return self._of.get(name)

    def directory(self, name: str) -> Path | None:
        """The directory of the model of that name in the server, None for a model of the repositories."""
        namespace = self._of.get(name)
        return None if namespace is None else namespace.directories[name]

    def resolve(self, name: str, seen_from: str) -> str:
        """The name in the server of the model that another one means: one of its own archive comes first.

        Args:
            name: what the other one calls it.
            seen_from: the name in the server of the other one.
        """
        namespace = self._of.get(seen_from)
        return name if namespace is None else namespace.names.get(name, name)
