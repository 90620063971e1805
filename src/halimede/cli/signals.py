"""The signals that stop a server: one to stop, one more to stop soon, and one more to stop at once."""

import asyncio
import logging
import os
import signal
from asyncio import AbstractEventLoop
from typing import NoReturn

logger = logging.getLogger("halimede")


class StopSignals:
    """What SIGINT and SIGTERM have asked for.

    Attributes:
        stop: set by the first of them.
        hurry: set by one that comes while the server still answers for its drain delay, or when that is over.
    """

    def __init__(self, loop: AbstractEventLoop, *, delay: bool, listen: bool = True) -> None:
        """Nothing asked for yet.

        Args:
            loop: where they are heard.
            delay: the server answers for a while after the first.
            listen: the process is the server's, and so are its signals; otherwise only `stop` and `hurry` count.
        """
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self._delay = delay
        for number in (signal.SIGINT, signal.SIGTERM) if listen else ():
            loop.add_signal_handler(number, self._received, number)

    def _received(self, number: signal.Signals) -> None:
        if not self.stop.is_set():
            self.stop.set()
            if self._delay:
                logger.info("%s: not ready any more; a second one ends the drain delay", number.name)
            else:
                logger.info("%s: stopping; a second one exits immediately", number.name)
        elif self._delay and not self.hurry.is_set():
            logger.info("%s came again: the drain delay ends; another one exits immediately", number.name)
            self.hurry.set()
        else:
            logger.error("%s came again: exiting immediately", number.name)
            exit_now(1)


def exit_now(status: int) -> NoReturn:
    """End the process without waiting for threads, which may never end."""
    logging.shutdown()
    os._exit(status)
