"""Where the Python code of a model is, for the log."""

import asyncio
import faulthandler
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, List, Optional

SIGNAL = signal.SIGRTMAX - 3
"""Has a process write the stacks of its threads to standard error, even while native code holds the interpreter."""

_EXECUTION = str(Path("halimede_worker", "execution.py"))


def write_stacks_on_signal() -> None:
    """Let this process heed `SIGNAL`."""
    faulthandler.register(SIGNAL, file=2, all_threads=True)


def python_stack(thread: int, loop: Optional[asyncio.AbstractEventLoop] = None) -> str:
    """The stack of a thread from the model's `execute` on, and of the coroutines that wait on a loop; "" for none.

    Args:
        thread: as `threading.get_ident` names it.
        loop: the event loop of the model; None for none.
    """
    frame = sys._current_frames().get(thread)
    frames = [] if frame is None else list(traceback.extract_stack(frame))
    below = [place for place, each in enumerate(frames) if each.filename.endswith(_EXECUTION)]
    parts = traceback.format_list(frames[below[-1] + 1 :]) if below else []
    for task in () if loop is None else asyncio.all_tasks(loop):
        parts += _task_stack(task)
    return "".join(parts).rstrip()


def _task_stack(task: "asyncio.Task[object]") -> List[str]:
    frames = []
    waiting: Any = task.get_coro()
    while getattr(waiting, "cr_frame", None) is not None:
        frame = waiting.cr_frame
        code = frame.f_code
        if not code.co_filename.endswith(_EXECUTION):
            frames.append(traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name))
        waiting = waiting.cr_await
    return [f"  Coroutine {task.get_name()}\n", *traceback.format_list(frames)] if frames else []
