"""Requests that web pages make browsers send: judged by `Host` and `Origin`, which pages cannot forge.

Whoever reaches a host without keys may run programs there, and a browser on its machine reaches it. So a request from
this machine must name the host: otherwise an attacker's DNS can make the page's own name stand for it. And a request
that is more than a read must not come from a page, unless the page's origin is allowed, or it invokes an endpoint from
the console. Objects are never pages of this host: they are sent with a policy that takes their origin away.
"""

from dataclasses import dataclass

from halimede.core.memo import Memo
from halimede.core.origins import OriginPolicy
from halimede.hosting.access.refusals import Reason, RefusedError
from halimede.http1.head import Head

_MAX_SHOWN = 128
_REMEMBERED = 256
"""Names of hosts have 253 characters at most; longer ones are none."""

_READS = ("GET", "HEAD")
_PREFLIGHT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is special about a request.

    Attributes:
        refusal: why it is refused; None if it is not.
        cors: header lines of its response that let the page read it.
        preflight: it only asks whether another one may be sent.
    """

    refusal: RefusedError | None = None
    cors: bytes = b""
    preflight: bool = False


class WebPageGuard:
    """Judges requests by the pages that they come from."""

    def __init__(self, policy: OriginPolicy) -> None:
        """A guard that knows the hosts and origins of a policy."""
        self._policy = policy
        self._is_known: Memo[str, bool] = Memo(self._knows)

    def _knows(self, host: str) -> bool:
        return not host or (len(host) < _REMEMBERED and self._policy.knows_host(host))

    def judge(self, head: Head, *, from_loopback: bool, own_pages: bool = False) -> Judgement | None:
        """What is special about a request; None for most.

        Args:
            head: the request's.
            from_loopback: its client is on this machine.
            own_pages: pages that this host itself has served, as its console, may send the request.
        """
        headers = head.headers
        host = headers.get("host", "")
        is_named = not from_loopback or self._is_known[host[:_REMEMBERED]]
        if is_named and "origin" not in headers:
            return None
        if not is_named:
            msg = (
                f"the Host header says '{host[:_MAX_SHOWN]}', which is no name of this host; to allow it, start the "
                "host with --allow-host"
            )
            return Judgement(RefusedError(Reason.FOREIGN_PAGE, msg))
        if own_pages and self._policy.is_own(headers["origin"], host):
            return None
        return self._judge_origin(head, headers["origin"])

    def _judge_origin(self, head: Head, origin: str) -> Judgement | None:
        if not self._policy.allows_origin(origin):
            if head.method in _READS:
                return None  # which the browser does not show to the page
            msg = (
                f"the request comes from a web page of the origin '{origin[:_MAX_SHOWN]}'; to allow it, start the host "
                "with --allow-origin"
            )
            return Judgement(RefusedError(Reason.FOREIGN_PAGE, msg))
        wanted = head.headers.get("access-control-request-method")
        lines = [("Access-Control-Allow-Origin", origin), ("Vary", "Origin")]
        preflight = head.method == "OPTIONS" and wanted is not None
        if preflight:
            lines += [
                ("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE"),
                ("Access-Control-Max-Age", str(_PREFLIGHT_SECONDS)),
            ]
            if asked := head.headers.get("access-control-request-headers"):
                lines.append(("Access-Control-Allow-Headers", asked))
            if head.headers.get("access-control-request-private-network") == "true":
                lines.append(("Access-Control-Allow-Private-Network", "true"))
        else:
            lines.append(("Access-Control-Expose-Headers", "*"))
        cors = "".join(f"{name}: {value}\r\n" for name, value in lines).encode("latin-1")
        return Judgement(cors=cors, preflight=preflight)
