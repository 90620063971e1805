"""What a gRPC connection may cost: the transport's settings, and allowances for what floods are made of."""

from dataclasses import dataclass, field

from halimede.core.clock import SECOND
from halimede.net.receiving import ReceiveBudget

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class GrpcSettings:
    """Limits and times of the gRPC transport; sizes in bytes, times in milliseconds, 0 for no limit where said.

    Attributes:
        max_receive_message_size: a longer request message is refused (RESOURCE_EXHAUSTED).
        max_concurrent_streams: calls open at once on a connection; more are refused (REFUSED_STREAM).
        max_header_list_size: a call with more header bytes is refused (RESOURCE_EXHAUSTED).
        stream_window: bytes that a client may send on a stream before it must wait for a grant.
        connection_window: the same for all streams of a connection together.
        max_frame_size: the longest frame accepted, 16384 to 16777215.
        max_buffered: once so many bytes wait on a connection (replies unsent, messages not yet taken), new calls
            wait and no more window is granted.
        stream_high_water: `Call.writable` is false while more bytes than this wait on the call.
        send_timeout_ms: a connection whose client takes nothing of what waits for so long is closed.
        preface_timeout_ms: a new connection that says nothing valid for so long is closed.
        drain_ping_ms: how long a graceful close waits for the client to have read the first GOAWAY.
        keepalive_time_ms: a silent connection is sent a ping after so long (`--grpc-keepalive-time`).
        keepalive_timeout_ms: it is closed when silent for so long after that (`--grpc-keepalive-timeout`).
        keepalive_permit_without_calls: whether to do so, and to let clients do so, when no call is open.
        max_pings_without_data: pings sent since the last data; 0 for no limit.
        min_ping_interval_ms: a client's ping earlier than this after its last one is a strike.
        max_ping_strikes: more strikes end the connection; 0 for no limit.
        max_connection_age_ms: a connection is closed gracefully at this age; 0 for never.
        max_connection_age_grace_ms: what is still open so long after that is cut off; 0 for never.
        budget: the memory of unfinished messages, of all connections together.
    """

    max_receive_message_size: int = INT32_MAX
    max_concurrent_streams: int = 2048
    max_header_list_size: int = 16_384
    stream_window: int = 8 * 2**20
    connection_window: int = 32 * 2**20
    max_frame_size: int = 2**20
    max_buffered: int = 64 * 2**20
    stream_high_water: int = 256 * 2**10
    send_timeout_ms: int = 60_000
    preface_timeout_ms: int = 20_000
    drain_ping_ms: int = 2_000
    keepalive_time_ms: int = 7_200_000
    keepalive_timeout_ms: int = 20_000
    keepalive_permit_without_calls: bool = False
    max_pings_without_data: int = 2
    min_ping_interval_ms: int = 300_000
    max_ping_strikes: int = 2
    max_connection_age_ms: int = 0
    max_connection_age_grace_ms: int = 0
    budget: ReceiveBudget = field(default_factory=ReceiveBudget, compare=False)


class Allowance:
    """How often a peer may do something that costs work and moves nothing: a burst, then a rate."""

    __slots__ = ("_burst", "_left", "_rate", "_since")

    def __init__(self, burst: int, per_second: int) -> None:
        self._burst = burst
        self._rate = per_second
        self._left = burst
        self._since = 0

    def spend(self, now: int) -> bool:
        """Whether it may be done once more, at `now` in nanoseconds."""
        if self._left <= 0:
            earned = (now - self._since) * self._rate // SECOND
            if earned <= 0:
                return False
            self._left = min(self._burst, earned)
            self._since = now
        elif self._left == self._burst:
            self._since = now
        self._left -= 1
        return True

    def refill(self, count: int) -> None:
        """Allow `count` more, up to the burst: the peer has done something useful."""
        self._left = min(self._burst, self._left + count)
