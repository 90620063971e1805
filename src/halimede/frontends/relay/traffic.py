"""What passes through an endpoint whose connections front ends have."""

from halimede.frontends.traffic import Counts, new_counts


class RelayedTraffic:
    """All front ends together; has what `Traffic` has.

    Attributes:
        protocol: its name in metrics.
        counts: requests that were answered.
        in_flight: requests that are not answered yet.
        open: how many connections are open.
        refused: connections that were one too many; None where there may be any number.
    """

    def __init__(self, protocol: str, *, limited: bool) -> None:
        """Nothing yet; `limited` if there may not be any number of connections."""
        self.protocol = protocol
        self.counts: Counts = new_counts()
        self.in_flight = 0
        self.open = 0
        self.refused: int | None = 0 if limited else None

    def add_refused(self, count: int) -> None:
        """So many more connections were one too many."""
        self.refused = (self.refused or 0) + count
