"""Where traces go."""

from collections.abc import Sequence
from typing import Protocol

from halimede.core.traces import Trace
from halimede.engine.tracing.settings import TraceSettings


class Exporter(Protocol):
    """Takes traces that are complete. On the event loop."""

    @property
    def options(self) -> Sequence[tuple[str, str]]:
        """Further settings, name and value, as clients may read them; names may repeat."""

    @property
    def dropped(self) -> int:
        """Traces that are lost, as they could not be handed on."""

    @property
    def spans(self) -> bool:
        """Traces are spans: they have places among those of other programs, and those of clients are continued."""

    def export(self, traces: list[Trace], settings: TraceSettings) -> None:
        """Take a client's request and all that it has caused, in the order in which they ended.

        `settings` are those by which the request was sampled: the same object for all until they change.
        """

    def flush(self, settings: TraceSettings) -> None:
        """No more requests will be sampled by these settings: pass on what is there of them."""

    def close(self, timeout_s: float) -> None:
        """Pass on all that is there, if that takes no longer than `timeout_s`. Blocks."""
