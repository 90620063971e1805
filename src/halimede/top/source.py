"""Where snapshots come from: the console's route, or else the statistics that any server with Triton's routes has."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from halimede.bench.address import Address
from halimede.bench.control import request
from halimede.bench.errors import BenchError
from halimede.top.snapshot import Snapshot, of_console, of_statistics

CONSOLE = "/v2/console/snapshot"
_ABSENT = (403, 404, 405)


class Source:
    """A server.

    Attributes:
        complete: the server has the console's route, with queues, instances and memory.
    """

    def __init__(self, address: Address, headers: Mapping[str, str]) -> None:
        self.complete = True
        self._address = address
        self._headers = headers
        self._server = ""

    def snapshot(self) -> Snapshot:
        """What it has counted so far.

        Raises:
            BenchError: it cannot be reached, or does not answer as expected.
        """
        try:
            if self.complete:
                status, body = request(self._address, "GET", CONSOLE, headers=self._headers)
                if status == 200:
                    return of_console(orjson.loads(body))
                if status not in _ABSENT:
                    raise self._unexpected("GET", CONSOLE, status, body)
                self.complete = False
            return self._from_statistics()
        except (KeyError, TypeError, ValueError) as error:
            raise BenchError(
                f"{self._address.authority} does not answer as a server of KServe v2: {error!r}"
            ) from None

    def _from_statistics(self) -> Snapshot:
        if not self._server:
            metadata = self._ask("GET", "/v2")
            self._server = f"{metadata['name']} {metadata['version']}"
        index: Sequence[Mapping[str, Any]] = self._ask("POST", "/v2/repository/index")
        statistics = self._ask("GET", "/v2/models/stats")["model_stats"]
        return of_statistics(time.time(), self._server, index, statistics)

    def _ask(self, method: str, path: str) -> Any:
        status, body = request(self._address, method, path, headers=self._headers)
        if status != 200:
            raise self._unexpected(method, path, status, body)
        return orjson.loads(body)

    def _unexpected(self, method: str, path: str, status: int, body: bytes) -> BenchError:
        text = body[:200].decode(errors="replace").strip()
        return BenchError(f"{self._address.authority} answers {method} {path} with {status}: {text}")
