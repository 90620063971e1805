"""Connections, and which process has them."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from halimede.hosting.http.request import Request
from halimede.hosting.routers.connection import is_invocation
from halimede.hosting.routers.door import Handed
from tests.frontends.http.serving import Client
from tests.hosting.instances import FakeInstance
from tests.hosting.routing.serving import (
    ENDPOINT,
    PROCESSES,
    Farm,
    Runtime,
    instances,
    runtime,
    variant_route,
)
from tests.support.waiting import wait_until

INVOCATION = f"POST /endpoints/{ENDPOINT}/invocations HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody".encode()
OTHER = b"GET /other HTTP/1.1\r\n\r\n"


@contextmanager
def shared() -> Iterator[tuple[Runtime, Farm, FakeInstance]]:
    """A runtime, its routers and its instance."""
    with instances(1) as [instance], runtime(variant_route("A", [instance])) as host:
        farm = PROCESSES.farm
        yield host, farm, instance


def connections(farm: Farm) -> list[int]:
    """How many connections each router has."""
    return sorted(farm.loop.call(lambda: [link.connections for link in farm.routers._links]))  # noqa: SLF001 - how connections are spread shows nowhere else


def ask(client: Client, data: bytes) -> tuple[int, bytes]:
    """Status and body of the response."""
    client.send(data)
    answer = client.read()
    return answer.status, answer.body


class TestWhoHasThem:
    def test_they_are_spread_evenly(self) -> None:
        with shared() as (host, farm, _), ExitStack() as stack:
            wait_until(lambda: connections(farm) == [0, 0])
            clients = [stack.enter_context(host.raw()) for _ in range(20)]
            for client in clients:
                assert ask(client, INVOCATION) == (200, b"body")
            assert connections(farm) == [10, 10]
            for client in clients[:5]:
                client.__exit__()
            wait_until(lambda: sum(connections(farm)) == 15)

    def test_any_request_but_an_invocation_is_answered_by_the_hosts_own_process(self) -> None:
        with shared() as (host, farm, _), host.raw() as client:
            assert ask(client, OTHER) == (404, b"the host's own process")
            wait_until(lambda: connections(farm) == [0, 0])
            assert len(farm.loop.call(lambda: list(farm.connections))) == 1

    def test_a_connection_goes_where_its_next_request_belongs(self) -> None:
        with shared() as (host, farm, _), host.raw() as client:
            for _ in range(10):
                assert ask(client, INVOCATION) == (200, b"body")
                assert ask(client, OTHER) == (404, b"the host's own process")
            wait_until(lambda: connections(farm) == [0, 0])

    def test_requests_that_are_sent_ahead_are_answered_in_order(self) -> None:
        with shared() as (host, _, _), host.raw() as client:
            client.send((INVOCATION + OTHER) * 20)
            answers = [client.read().status for _ in range(40)]
            assert answers == [200, 404] * 20

    def test_a_long_answer_is_read_to_its_end_before_the_connection_goes(self) -> None:
        body = b"x" * 5_000_000
        with shared() as (host, _, _), host.raw() as client:
            head = f"POST /endpoints/{ENDPOINT}/invocations HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
            client.send(head.encode() + body + OTHER)
            assert client.read().body == body
            assert client.read().status == 404

    @pytest.mark.parametrize("size", [1, 10])
    def test_a_head_may_come_in_pieces(self, size: int) -> None:
        with shared() as (host, _, _), host.raw() as client:
            for data, status in ((INVOCATION, 200), (OTHER, 404)):
                for start in range(0, len(data), size):
                    client.send(data[start : start + size])
                assert client.read().status == status

    def test_a_malformed_head_is_refused(self) -> None:
        with shared() as (host, _, _):
            for data in (b"\x16\x03\x01\x02", b"nothing at all\r\n\r\n", b"POST /x HTTP/1.1\r\nbad\r\n\r\n"):
                with host.raw() as client:
                    client.send(data)
                    assert client.read().status == 400

    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            (INVOCATION, True),
            (b"\r\n" + INVOCATION, True),
            (b"GET /endpoints/a HTTP/1.1\r\n\r\n", True),
            (b"GET /endpoints HTTP/1.1\r\n\r\n", False),
            (OTHER, False),
            (b"POST /endpoints/e/async-invocations HTTP/1.1\r\n\r\n", False),
            (b"POST /endpoints/" + b"n" * 63 + b"/async-invocations HTTP/1.1\r\n\r\n", False),
            (b"GET /bucket/endpoints/ HTTP/1.1\r\n\r\n", False),
            (b"x", False),
        ],
    )
    def test_what_is_an_invocation(self, data: bytes, expected: bool) -> None:
        assert is_invocation(data + b"\r\n") is expected


class TestWhoseTheyAre:
    def test_the_clients_address_goes_along(self) -> None:
        seen: list[tuple[str, bool]] = []

        def answer(request: Request) -> None:
            seen.append((request.client, request.from_loopback))
            request.respond(200)

        with shared() as (host, farm, _), host.raw() as client:
            limit = farm.routers.limit
            farm.routers.listen(answer, farm.connections)
            assert ask(client, INVOCATION)[0] == 200
            assert ask(client, OTHER)[0] == 200
            address, port = client.socket.getsockname()
            assert seen == [(f"{address}:{port}", True)]
            farm.routers.limit = limit

    def test_a_client_that_has_gone_before_its_request_is_looked_at_is_not_taken_for_a_local_one(
        self,
    ) -> None:
        # the address of a connection that was reset cannot be asked for any more
        seen: list[bool] = []

        def answer(request: Request) -> None:
            seen.append(request.from_loopback)
            request.respond(200)

        with shared() as (_, farm, _):
            limit = farm.routers.limit
            farm.routers.listen(answer, farm.connections)
            near, far = socket.socketpair()
            with far:
                farm.loop.call(_hand_in, farm, near, OTHER)
                wait_until(lambda: seen == [False])
            farm.routers.limit = limit


def _hand_in(farm: Farm, connection: socket.socket, data: bytes) -> None:
    """A connection comes to the host's own process from a router, as one of another machine."""
    connection.setblocking(False)
    farm.routers._adoption.take(Handed(connection, "10.0.0.1:5", False, data))  # noqa: SLF001 - a connection of a machine that is not there
