"""What the work on queues needs of the host."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from halimede.hosting.asynchronous.journal import Journal
from halimede.hosting.asynchronous.meter import AsyncMeter
from halimede.hosting.asynchronous.requests import Notice
from halimede.hosting.asynchronous.settings import AsyncSettings
from halimede.hosting.store.objects import Objects


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the work on queues needs.

    Attributes:
        journal: where requests are kept.
        objects_of: the objects of an account.
        directory: where large results are before they are written.
        meter: what counts.
        settings: limits.
        now: the time, in seconds since 1970.
        sleep: lets so many seconds pass.
        tell: gives a message, which is in the journal, to its topic.
    """

    journal: Journal
    objects_of: Callable[[str], Objects]
    directory: Path
    meter: AsyncMeter
    settings: AsyncSettings
    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    tell: Callable[[Notice], None]
