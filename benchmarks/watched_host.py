"""A host that writes down the long steps of its event loop: `python -m benchmarks.watched_host FILE [FLAG ...]`.

FILE gets a line for each step of 20 ms and more: a document of `Step`. The loop is asyncio's own, whose steps can be
timed; what is done in them is the same as in uvloop's.
"""

import asyncio
import json
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

_LONG_S = 0.02


@dataclass(frozen=True, slots=True)
class Step:
    """A callback of an event loop, which does nothing else meanwhile.

    Attributes:
        ended: when, by `time.time`.
        seconds: how long it took.
        cpu_s: how long it had a processor.
        what: the callback, and where in the program it was after a moment.
    """

    ended: float
    seconds: float
    cpu_s: float
    what: str


class StepWatch:
    """Times the steps of the event loops of the thread that it is made on."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._thread = threading.get_ident()
        self._began = 0.0  # 0 between steps
        self._at = ""
        self._run = asyncio.Handle._run  # noqa: SLF001 - there is no other way in

    def start(self) -> None:
        """Watch from now on."""
        watch = self

        def run(handle: Any) -> None:
            watch.run(handle)

        asyncio.Handle._run = run  # type: ignore[method-assign,assignment]  # noqa: SLF001
        threading.Thread(target=self._look, daemon=True).start()

    def run(self, handle: Any) -> None:
        """Run a step, and note it if it is long."""
        if threading.get_ident() != self._thread:
            self._run(handle)
            return
        cpu_s, self._began = time.thread_time(), time.perf_counter()
        self._run(handle)
        seconds = time.perf_counter() - self._began
        self._began = 0.0
        if seconds >= _LONG_S:
            step = Step(time.time(), seconds, time.thread_time() - cpu_s, f"{handle!r:.200} {self._at}")
            self._file.write(json.dumps(asdict(step)) + "\n")
            self._file.flush()
            self._at = ""

    def _look(self) -> None:
        looked = 0.0
        while True:
            time.sleep(_LONG_S / 2)
            began = self._began
            if began and began != looked and time.perf_counter() - began >= _LONG_S / 2:
                looked = began
                frame = sys._current_frames().get(self._thread)  # noqa: SLF001
                calls = traceback.extract_stack(frame)[-8:]
                self._at = " > ".join(
                    f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in calls
                )


def steps(file: Path, since: float) -> Iterator[Step]:
    """What a file has of the steps that ended after a moment."""
    for line in file.read_text().splitlines():
        step = Step(**json.loads(line))
        if step.ended >= since:
            yield step


def main() -> None:
    """Run the host."""
    import uvloop

    uvloop.new_event_loop = asyncio.new_event_loop  # type: ignore[assignment]
    from halimede.cli.main import main as halimede

    with Path(sys.argv[1]).open("a") as file:
        StepWatch(file).start()
        halimede(["host", *sys.argv[2:]])


if __name__ == "__main__":
    main()
