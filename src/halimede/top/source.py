"""Where snapshots come from: a server's routes, or those of a host. Which of them it is, they find out."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from halimede.bench.address import Address
from halimede.bench.control import request
from halimede.bench.errors import BenchError
from halimede.top.host_snapshot import HostSnapshot, of_host
from halimede.top.signing import Signer
from halimede.top.snapshot import Snapshot, of_console, of_statistics

CONSOLE = "/v2/console/snapshot"
HOST_CONSOLE = "/console/snapshot"
_ABSENT = (403, 404, 405)
_METRICS = b"halimede_host_"
_NO_KEY = ". Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, as `halimede host --print-env` shows them"


class ServerSource:
    """A server of KServe v2.

    Attributes:
        complete: the server has the console's route, with queues, instances and memory.
    """

    def __init__(self, address: Address, headers: Mapping[str, str], *, complete: bool) -> None:
        self.complete = complete
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
                return of_console(self._ask("GET", CONSOLE))
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
            raise _unexpected(self._address, method, path, status, body)
        return orjson.loads(body)


class HostSource:
    """A host, `halimede host`.

    Args:
        address: where it is.
        headers: that each request has.
        signer: signs each request; None for no signatures.
    """

    def __init__(self, address: Address, headers: Mapping[str, str], signer: Signer | None) -> None:
        self._address = address
        self._headers = headers
        self._signer = signer

    def snapshot(self) -> HostSnapshot:
        """What it has counted so far.

        Raises:
            BenchError: it cannot be reached, refuses, or does not answer as expected.
        """
        status, body = _ask_host(self._address, self._headers, self._signer)
        if status != 200:
            advice = "" if self._signer is None or self._signer.has_key else _NO_KEY
            reason = _reason(body) or f"it answers with {status}: {_shortened(body)}"
            raise BenchError(f"The host at {self._address.authority} refuses: {reason}{advice}")
        try:
            return of_host(orjson.loads(body))
        except (KeyError, TypeError, ValueError) as error:
            raise BenchError(
                f"{self._address.authority} does not answer as a host of halimede: {error!r}"
            ) from None


def find_source(
    address: Address, headers: Mapping[str, str], signer: Signer, *, signs: bool = False
) -> ServerSource | HostSource:
    """What is at an address.

    Args:
        address: where to look.
        headers: that each request has.
        signer: signs requests to a host.
        signs: sign them even if the host answers unsigned requests: the signature says which region is shown.

    Raises:
        BenchError: it cannot be reached, or is neither a server nor a host.
    """
    status, body = request(address, "GET", CONSOLE, headers=headers)
    if status == 200:
        return ServerSource(address, headers, complete=True)
    if status not in _ABSENT:
        raise _unexpected(address, "GET", CONSOLE, status, body)
    status, body = _ask_host(address, headers, None)
    if status == 200 and b'"endpoints"' in body:
        return HostSource(address, headers, signer if signs else None)
    if status in (401, 403) and _reason(body):
        return HostSource(address, headers, signer)
    status, body = request(address, "GET", "/v2", headers=headers)
    if status == 200 and b'"name"' in body:
        return ServerSource(address, headers, complete=False)
    if _METRICS in request(address, "GET", "/metrics")[1]:
        raise BenchError(
            f"The host at {address.authority} has no console (--allow-console=false), from which the figures come"
        )
    raise BenchError(
        f"{address.authority} is neither a server of KServe v2 nor a host of halimede: it answers GET /v2 with "
        f"status {status}"
    )


def _ask_host(address: Address, headers: Mapping[str, str], signer: Signer | None) -> tuple[int, bytes]:
    signature: Mapping[str, str] = {}
    if signer is not None:
        scheme = "https" if address.tls else "http"
        signature = signer.headers(f"{scheme}://{address.authority}{address.path}{HOST_CONSOLE}")
    return request(address, "GET", HOST_CONSOLE, headers={**headers, **signature})


def _reason(body: bytes) -> str:
    """What a host says that it does not want; "" if it is no host."""
    try:
        return str(orjson.loads(body)["error"])
    except (KeyError, TypeError, ValueError):
        return ""


def _unexpected(address: Address, method: str, path: str, status: int, body: bytes) -> BenchError:
    return BenchError(f"{address.authority} answers {method} {path} with {status}: {_shortened(body)}")


def _shortened(body: bytes) -> str:
    return " ".join(body[:200].decode(errors="replace").split())
