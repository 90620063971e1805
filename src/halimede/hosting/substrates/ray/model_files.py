"""The extracted archives of multi-model instances on nodes."""

from collections.abc import Awaitable, Callable
from typing import Any

from halimede.hosting.store.source import ModelSource
from halimede.hosting.substrates.base import NodeUnreachableError, RunningInstance
from halimede.hosting.substrates.ray.engine_process import EngineLostError
from halimede.hosting.substrates.ray.messages import LostError, UnreachableError


class NodeModelFiles:
    """The files of an instance on a node (`ModelFiles`); the node shares them among its instances."""

    def __init__(
        self,
        instance: RunningInstance,
        ask: Callable[..., Awaitable[Any]],
        until_connected: Callable[[], Awaitable[object]],
    ) -> None:
        """The files of an instance.

        Args:
            instance: it.
            ask: calls a method of its actor.
            until_connected: returns once there is an engine, which is started anew when it has ended.
        """
        self._name = instance.request.id
        self._ask = ask
        self._until_connected = until_connected
        self.node = instance.node

    async def fetch(self, name: str, url: str, source: ModelSource, timeout_s: float) -> int:
        """Fetch and extract an archive on the node: the bytes that its files take on disk there."""
        offer = await source.offer(url)
        try:
            disk_bytes: int = await self._asked("fetch", name, offer, timeout_s)
        except (LostError, UnreachableError) as error:
            raise NodeUnreachableError(str(error)) from None
        return disk_bytes

    async def remove(self, name: str) -> None:
        """Let go of what there is of a model."""
        try:
            await self._asked("remove", name)
        except LostError:  # with all that it had
            return
        except UnreachableError as error:
            raise NodeUnreachableError(str(error)) from None

    async def _asked(self, *arguments: Any) -> Any:
        """What the actor answers, by however many engines: no other instance could be asked without one either."""
        while True:
            try:
                return await self._ask(self._name, *arguments)
            except EngineLostError:
                await self._until_connected()

    async def memory(self) -> int:
        """Bytes of memory that the instance's processes have for themselves; 0 if that cannot be known."""
        try:
            memory: int = await self._ask(self._name, "memory")
        except (LostError, UnreachableError, EngineLostError):
            return 0
        return memory
