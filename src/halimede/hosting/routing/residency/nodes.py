"""Which archives were fetched on which machines, where instances share a cache of them."""

from collections.abc import Collection


class NodeArchives:
    """The archives that machines are thought to have. A machine may have dropped one meanwhile, and fetches it again.

    What is known of a machine is forgotten with its last instance, and archives of which there are too many, the oldest
    first.
    """

    def __init__(self, most: int) -> None:
        """Nothing is known; of each machine, up to `most` archives are remembered."""
        self._most = most
        self._instances: dict[str, int] = {}
        self._archives: dict[str, dict[str, None]] = {}  # machine → models, in the order of their last fetch
        self._nodes: dict[str, dict[str, None]] = {}  # model → machines

    def of(self, model: str) -> Collection[str]:
        """The machines that have fetched a model's archive."""
        return self._nodes.get(model, ())

    def joined(self, node: str) -> None:
        """An instance on a machine takes requests."""
        self._instances[node] = self._instances.get(node, 0) + 1

    def left(self, node: str) -> None:
        """An instance on a machine takes none any more."""
        self._instances[node] -= 1
        if not self._instances[node]:
            del self._instances[node]
            for model in self._archives.pop(node, ()):
                self._forget(node, model)

    def fetched(self, node: str, model: str) -> None:
        """A machine has a model's archive."""
        if node not in self._instances:
            return
        archives = self._archives.setdefault(node, {})
        archives.pop(model, None)
        archives[model] = None
        self._nodes.setdefault(model, {})[node] = None
        if len(archives) > self._most:
            oldest = next(iter(archives))
            del archives[oldest]
            self._forget(node, oldest)

    def _forget(self, node: str, model: str) -> None:
        nodes = self._nodes[model]
        del nodes[node]
        if not nodes:
            del self._nodes[model]
