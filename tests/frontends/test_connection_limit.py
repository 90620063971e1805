import asyncio

from halimede.frontends.connection_limit import MOST_TURNED_AWAY, ConnectionLimit
from halimede.frontends.server import Connections


class TurnedAway(asyncio.Protocol):
    """A connection that is gone only in a later turn of the loop."""

    def __init__(self, connections: "Connections[TurnedAway]") -> None:
        connections.add(self)
        self.aborted = 0

    def shutdown(self) -> None:
        raise AssertionError

    def abort(self) -> None:
        self.aborted += 1


def test_for_each_connection_too_many_another_one_is_cut_off() -> None:
    limit = ConnectionLimit(0, Connections(), asyncio.Protocol, TurnedAway)
    made = [limit.protocol() for _ in range(MOST_TURNED_AWAY + 3)]
    assert sum(each.aborted for each in made if isinstance(each, TurnedAway)) == 3
    assert max(each.aborted for each in made if isinstance(each, TurnedAway)) == 1
    assert limit.refused == MOST_TURNED_AWAY + 3
