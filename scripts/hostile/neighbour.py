"""The ordinary client: it sends small requests, one after the other, and remembers how long each took."""

import http.client
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection

PATH = "/v2/models/neighbour/infer"
BODY = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[4],"data":[1,2,3,4]}]}'
PAUSE = 0.002
"""Seconds between an answer and the next request."""
PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Period:
    """What became of the requests since the last question.

    Attributes:
        latencies: seconds until the answers, ascending.
        failures: what went wrong, a line for each request that was not answered as it should be.
    """

    latencies: list[float]
    failures: list[str]

    def quantile(self, share: float) -> float:
        """The latency in milliseconds that so many answers did not exceed; 0 without answers."""
        return 1000 * self.latencies[int(share * (len(self.latencies) - 1))] if self.latencies else 0.0


class Neighbour:
    """The client in a process of its own, so that no attack takes its processor time from within."""

    def __init__(self, address: str) -> None:
        context = get_context("spawn")
        self._questions, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(address, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.period()

    def period(self) -> Period:
        """What became of its requests since the last call."""
        self._questions.send(None)
        if not self._questions.poll(2 * PATIENCE):
            return Period([], ["the client hangs"])
        latencies, failures = self._questions.recv()
        return Period(sorted(latencies), failures)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def _run(address: str, questions: Connection) -> None:
    latencies: list[float] = []
    failures: list[str] = []
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    with suppress(EOFError, BrokenPipeError):
        while True:
            began = time.perf_counter()
            try:
                connection.request("POST", PATH, BODY)
                with connection.getresponse() as response:
                    text = response.read()
                if response.status != 200 or b"[1.0,2.0,3.0,4.0]" not in text:
                    failures.append(f"{response.status} {text[:200]!r}")
            except (OSError, http.client.HTTPException) as error:
                failures.append(repr(error))
                connection.close()
            latencies.append(time.perf_counter() - began)
            if questions.poll(PAUSE):
                questions.recv()
                questions.send((latencies, failures))
                latencies, failures = [], []
