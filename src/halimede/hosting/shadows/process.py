"""The process that sends copies and compares answers: `python -m halimede.hosting.shadows.process CHANNEL`.

So a copy takes none of the event loop's time that answers clients, but for handing it over. Where the processors do not
suffice for all, this process gets a sixtieth of what others get, and copies that it cannot keep up with are lost. Each
process that answers invocations has one of its own once there is something to copy. It ends with that process, whatever
that ends by.
"""

import asyncio
import os
import queue
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import uvloop

from halimede.core.background_threads import SWITCH_S
from halimede.hosting.routing.agreement import ShadowCounts
from halimede.hosting.shadows.comparison import compare, note
from halimede.hosting.shadows.frames import Begin, Done, Frames, Job, Jobs, Results, Returned, Sent
from halimede.hosting.shadows.instance import Instance
from halimede.hosting.shadows.sending import Sending
from halimede.http1.upstream import UpstreamPool

_NICENESS = 19
"""The sender has 1.5 % of another process's share of a busy processor: little, but its copies still go on."""

_COMPARISONS = 1024
"""So many wait at most; answers that come then are not compared."""

_DONE_S = 0.01
"""How often is told what has been answered: so the other process has less to read."""

_DONE = 64
"""So many answers are told of at once, however soon they are there."""

_RESULTS_S = 0.02
"""How often is told what has been compared."""

_INSTANCES = 256
"""Of so many connections are kept."""


class Sender:
    """The process. Lives on the event loop."""

    def __init__(self) -> None:
        """A sender that has been told nothing yet."""
        self.frames = Frames(self._on_message, _end)
        self._loop = asyncio.get_running_loop()
        self._instances: dict[tuple[str, int, str], Instance] = {}
        self._queue: queue.Queue[Sending] = queue.Queue(_COMPARISONS)
        self._done: list[Sending] = []
        self._telling: asyncio.TimerHandle | None = None
        self._limits: Begin

    def _on_message(self, message: Any, data: bytes) -> None:
        if isinstance(message, Jobs):
            begin = 0
            for job in message.jobs:
                end = begin + job.body_bytes + job.answer_bytes
                self._instance(job).add(job, data[begin:end], self._limits.answer_bytes)
                begin = end
        else:
            self._limits = message
            threading.Thread(target=self._compare, daemon=True).start()

    def _instance(self, job: Job) -> Instance:
        key = job.host, job.port, job.unix_socket
        found = self._instances.get(key)
        if found is None:
            if len(self._instances) >= _INSTANCES:
                self._instances.pop(next(iter(self._instances))).close()
            found = Instance(UpstreamPool(*key), self._limits.concurrency, self._sent)
            self._instances[key] = found
        return found

    def _sent(self, sending: Sending) -> None:
        self._done.append(sending)
        if len(self._done) >= _DONE:
            self._tell()
        elif self._telling is None:
            self._telling = self._loop.call_later(_DONE_S, self._tell)

    def _tell(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        done, self._done = self._done, []
        for each in done:
            if each.job.returns and each.answer is not None:
                returned = Returned(each.job.number, each.status, each.answer.headers)
                self.frames.send(returned, [each.answer.body])
        # in one turn: what is compared is told after this
        self.frames.send(
            Done(
                [
                    Sent(each.job.number, each.status, each.model_ns, self._is_compared(each), each.refused)
                    for each in done
                ]
            )
        )

    def _is_compared(self, sending: Sending) -> bool:
        """Whether the answers are compared: they are there, and there is room for them to wait."""
        if sending.primary is None or sending.answer is None:
            return False
        try:
            self._queue.put_nowait(sending)
        except queue.Full:
            return False
        return True

    # on a thread

    def _compare(self) -> None:
        while True:
            sent = [self._queue.get()]
            time.sleep(_RESULTS_S)
            with suppress(queue.Empty):
                while True:
                    sent.append(self._queue.get_nowait())
            results: dict[int, Results] = {}
            for each in sent:
                result = results.setdefault(each.job.variant, Results([], ShadowCounts()))
                result.numbers.append(each.job.number)
                self._compare_one(each, result.counts)
            for result in results.values():
                self._loop.call_soon_threadsafe(self.frames.send, result)

    def _compare_one(self, sending: Sending, counts: ShadowCounts) -> None:
        assert sending.primary is not None
        assert sending.answer is not None
        try:
            note(compare(sending.primary, sending.answer, self._limits.tolerance), counts)
        except Exception:
            counts.skipped += 1


def _end() -> None:
    """The other process is gone."""
    os._exit(0)


async def _run(channel: int) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):  # which the host gets too, and acts on
        loop.add_signal_handler(number, lambda: None)
    sender = Sender()
    await loop.create_unix_connection(lambda: sender.frames, sock=socket.socket(fileno=channel))
    await loop.create_future()


def main() -> None:
    """Run until the other process is gone."""
    os.nice(_NICENESS)
    sys.setswitchinterval(SWITCH_S)  # the thread that compares makes way for answers that come
    uvloop.run(_run(int(sys.argv[1])))


if __name__ == "__main__":
    main()
