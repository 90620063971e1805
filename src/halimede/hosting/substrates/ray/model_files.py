"""The extracted archives of multi-model instances on nodes."""

from collections.abc import Awaitable, Callable
from typing import Any

from halimede.hosting.errors import ApiError
from halimede.hosting.store.source import ModelSource
from halimede.hosting.substrates.base import RunningInstance
from halimede.hosting.substrates.ray.engine_process import EngineLostError
from halimede.hosting.substrates.ray.messages import LostError


class NodeModelFiles:
    """The files of an instance on a node (`ModelFiles`); the node shares them among its instances."""

    def __init__(self, instance: RunningInstance, ask: Callable[..., Awaitable[Any]]) -> None:
        """The files of an instance; `ask` calls a method of its actor."""
        self._name = instance.request.id
        self._ask = ask
        self.node = instance.node

    async def fetch(self, name: str, url: str, source: ModelSource, timeout_s: float) -> int:
        """Fetch and extract an archive on the node: the bytes that its files take on disk there."""
        offer = await source.offer(url)
        try:
            disk_bytes: int = await self._ask(self._name, "fetch", name, offer, timeout_s)
        except (LostError, EngineLostError) as error:
            raise _unreachable(error) from None
        return disk_bytes

    async def remove(self, name: str) -> None:
        """Let go of what there is of a model."""
        try:
            await self._ask(self._name, "remove", name)
        except LostError:  # with all that it had
            return
        except EngineLostError as error:
            raise _unreachable(error) from None

    async def memory(self) -> int:
        """Bytes of memory that the instance's processes have for themselves; 0 if that cannot be known."""
        try:
            memory: int = await self._ask(self._name, "memory")
        except (LostError, EngineLostError):
            return 0
        return memory


def _unreachable(error: Exception) -> ApiError:
    why = f": {error}" if str(error) else ""
    return ApiError(
        "ServiceUnavailable", f"the node of the instance cannot be reached now{why}; try again", 503
    )
