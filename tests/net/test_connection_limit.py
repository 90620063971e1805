import asyncio
import resource

import pytest

from halimede.core.errors import UnavailableError
from halimede.net.connection_limit import MOST_TURNED_AWAY, ConnectionLimit
from halimede.net.server import Connections


class TurnedAway(asyncio.Protocol):
    """A connection that is gone only in a later turn of the loop."""

    def __init__(self, connections: "Connections[TurnedAway]", error: UnavailableError) -> None:
        connections.add(self)
        self.error = error
        self.aborted = 0

    def shutdown(self) -> None:
        raise AssertionError

    def abort(self) -> None:
        self.aborted += 1


def test_for_each_connection_too_many_another_one_is_cut_off() -> None:
    connections: Connections[TurnedAway] = Connections()
    connections.elsewhere = 1
    limit = ConnectionLimit(1, connections, asyncio.Protocol, TurnedAway)
    made = [limit.protocol(5) for _ in range(MOST_TURNED_AWAY + 3)]
    assert sum(each.aborted for each in made if isinstance(each, TurnedAway)) == 3
    assert max(each.aborted for each in made if isinstance(each, TurnedAway)) == 1
    assert limit.refused == MOST_TURNED_AWAY + 3
    assert {each.error.message for each in made if isinstance(each, TurnedAway)} == {
        "the server has 1 connections, as many as it may; try again later"
    }


def test_a_connection_with_a_descriptor_of_the_reserve_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = ConnectionLimit(0, Connections(), asyncio.Protocol, TurnedAway)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1000, 1000))
    assert not isinstance(limit.protocol(749), TurnedAway)
    refused = limit.protocol(750)
    assert isinstance(refused, TurnedAway)
    assert refused.error.message == (
        "the server is out of file descriptors, of which this process may have 1000; try again later"
    )


def test_an_endpoint_keeps_no_more_than_an_eighth_of_the_reserve_of_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = ConnectionLimit(0, Connections(), asyncio.Protocol, TurnedAway)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1000, 1000))
    made = [limit.protocol(750 + number) for number in range(40)]
    assert sum(1 - each.aborted for each in made if isinstance(each, TurnedAway)) == 250 // 8


def test_protocols_are_made_of_what_is_known_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def make(*details: object) -> asyncio.Protocol:
        made.append(details)
        return asyncio.Protocol()

    limit = ConnectionLimit(0, Connections(), make, lambda _, error, *details: make(error.message, *details))
    limit.protocol(5, "handed")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4, 4))
    limit.protocol(5, "late")
    assert made == [
        ("handed",),
        ("the server is out of file descriptors, of which this process may have 4; try again later", "late"),
    ]
