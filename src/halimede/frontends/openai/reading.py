"""Requests for texts are read on the server's loop if that is quick, otherwise on threads, so that others go on."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from halimede.frontends.openai.known_models import KnownModel
from halimede.frontends.openai.template_limits import ON_LOOP, USUAL, TemplateLimits, TooSlowForLoopError

Made = TypeVar("Made")

_SMALL: Final = 65_536
"""Bodies of more bytes are read on a thread."""

_THREADS: Final = ThreadPoolExecutor(2, "halimede-chats")


def read_on_loop(read: Callable[[TemplateLimits], Made], size: int, known: KnownModel) -> Made | None:
    """What a request asks for; None if it is to be read by `read_on_thread`.

    Args:
        read: reads it, with limits for the chat template.
        size: of its body, in bytes.
        known: the model.

    Raises:
        HalimedeError: what is wrong with it.
    """
    templates = (known.files.template, known.files.tool_template)
    if size > _SMALL or any(each is not None and each.slow for each in templates):
        return None
    try:
        return read(ON_LOOP)
    except TooSlowForLoopError:
        return None


async def read_on_thread(read: Callable[[TemplateLimits], Made]) -> Made:
    """The same, on a thread. Raises as `read_on_loop` does."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, read, USUAL)
