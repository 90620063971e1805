"""How models in the server's process call it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from halimede.core.clock import VirtualClock
from halimede.workers.in_server.inbox import Inbox
from halimede.workers.in_server.runtime import ServerRuntime
from halimede_worker.errors import TritonModelException
from tests.support.loops import LoopThread


async def made(services: Any) -> ServerRuntime:
    loop = asyncio.get_running_loop()
    runtime = ServerRuntime(loop, Inbox(loop), VirtualClock())
    runtime.services = services
    return runtime


@pytest.mark.parametrize("later", [False, True])
def test_a_thread_does_not_wait_for_a_call_that_failed_in_a_way_that_nobody_foresaw(later: bool) -> None:
    def fail(message: tuple[Any, ...]) -> Any:
        if later:
            return fail_later()
        raise RuntimeError("unforeseen")

    async def fail_later() -> None:
        raise RuntimeError("unforeseen")

    with LoopThread() as loop:
        runtime = loop.run(made(SimpleNamespace(handle=fail)))
        with pytest.raises(TritonModelException, match="RuntimeError: unforeseen"):
            runtime.call((1,))
