"""Stateful sessions, as clients and containers see them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from halimede.core.clock import WallClock
from halimede.hosting.errors import ApiError
from halimede.hosting.routing.sessions import SessionError, Sessions
from halimede.hosting.specs import Container
from tests.hosting.instances import FakeInstance, Received, Reply
from tests.hosting.routing.serving import (
    ENDPOINT,
    Runtime,
    endpoint_route,
    instances,
    invoke,
    one_instance,
    one_process,
    runtime,
    variant_route,
)
from tests.support.waiting import wait_until

FAR = "2099-01-01T00:00:00Z"


class Stateful:
    """A container that adds up what it is asked in each session.

    Attributes:
        sums: session → what it has come to.
        expires: when new sessions end.
    """

    def __init__(self, instance: FakeInstance, number: int) -> None:
        self.sums: dict[str, int] = {}
        self.expires = FAR
        self._number = number
        instance.invoke = self.answer

    def answer(self, received: Received) -> Reply:
        name = received.headers.get("x-amzn-sagemaker-session-id", "")
        if name == "NEW_SESSION":
            name = f"s-{self._number}-{len(self.sums)}"
            self.sums[name] = 0
            return Reply(200, b"0", {"X-Amzn-SageMaker-New-Session-Id": f"{name}; Expires={self.expires}"})
        if name not in self.sums:
            return Reply(400, f"there is no session {name}".encode())
        if received.body == b"close":
            return Reply(200, b"%d" % self.sums.pop(name), {"X-Amzn-SageMaker-Closed-Session-Id": name})
        self.sums[name] += int(received.body)
        return Reply(200, b"%d" % self.sums[name])


@contextmanager
def stateful(count: int, **spec: Any) -> Iterator[tuple[Runtime, list[Stateful]]]:
    """An endpoint of so many instances that have sessions."""
    with instances(count) as made, runtime(variant_route("AllTraffic", made, **spec)) as host:
        yield host, [Stateful(one, number) for number, one in enumerate(made)]
        wait_until(lambda: host.is_idle)


def opened(client: Any) -> str:
    """A new session."""
    answer = invoke(client, SessionId="NEW_SESSION")
    token, _, rest = answer["NewSessionId"].partition("; ")
    assert rest == f"Expires={FAR}"
    assert len(answer["NewSessionId"]) <= 256
    return str(token)


def add(client: Any, session: str, number: int) -> int:
    return int(invoke(client, b"%d" % number, SessionId=session)["Body"].read())


def refusal(client: Any, session: str, **more: Any) -> str:
    """The text with which a request in a session is refused."""
    with pytest.raises(ClientError) as caught:
        invoke(client, SessionId=session, **more)
    error = caught.value.response["Error"]
    assert error["Code"] == "ValidationError"
    return str(error["Message"])


def test_requests_of_a_session_go_to_the_instance_that_has_opened_it() -> None:
    with stateful(3) as (host, containers):
        clients = [host.client() for _ in range(3)]
        sessions = [opened(clients[number % 3]) for number in range(12)]
        assert len(set(sessions)) == 12
        for number in range(1, 4):
            sums = [add(clients[(at + number) % 3], session, number) for at, session in enumerate(sessions)]
            assert set(sums) == {number * (number + 1) // 2}
        assert sum(len(each.sums) for each in containers) == 12
        assert sum(bool(each.sums) for each in containers) > 1


def test_a_container_sees_its_own_ids() -> None:
    with one_instance() as (host, instance):
        Stateful(instance, 7)
        client = host.client()
        session = opened(client)
        add(client, session, 1)
        seen = [got.headers["x-amzn-sagemaker-session-id"] for got in instance.seen]
        assert seen == ["NEW_SESSION", "s-7-0"]


def test_a_response_stream_of_a_session() -> None:
    with stateful(3) as (host, _):
        client = host.client()
        session = opened(client)
        for number in (1, 2, 3):
            answer = client.invoke_endpoint_with_response_stream(
                EndpointName=ENDPOINT, Body=b"1", SessionId=session
            )
            assert b"".join(part["PayloadPart"]["Bytes"] for part in answer["Body"]) == b"%d" % number


def test_a_session_that_a_container_closes_is_closed_for_all() -> None:
    with stateful(2) as (host, _):
        clients = [host.client() for _ in range(4)]
        session, other = opened(clients[0]), opened(clients[1])
        add(clients[0], session, 5)
        answer = invoke(clients[0], b"close", SessionId=session)
        assert (answer["ClosedSessionId"], answer["Body"].read()) == (session, b"5")
        assert "NewSessionId" not in answer
        for client in clients:  # in whichever process they end up
            wait_until(partial(is_closed, client, session))
            assert refusal(client, session) == (
                f"Session {session} of endpoint {ENDPOINT} is closed. Open another one with the SessionId NEW_SESSION."
            )
        assert add(clients[2], other, 1) == 1


def is_closed(client: Any, session: str) -> bool:
    """Whether the process that a client speaks to knows that a session is closed."""
    return "is closed" in refusal_of(client, session)


def refusal_of(client: Any, session: str) -> str:
    """With what a request in a session is answered that must not succeed."""
    with pytest.raises(ClientError) as caught:
        invoke(client, b"1", SessionId=session)
    return str(caught.value)


def test_an_id_that_was_closed_may_be_used_again() -> None:
    with one_instance() as (host, instance):
        for _ in range(2):
            container = Stateful(instance, 1)  # which begins to count anew
            client = host.client()
            session = opened(client)
            assert add(client, session, 5) == 5
            assert invoke(client, b"close", SessionId=session)["ClosedSessionId"] == session
            assert not container.sums


def test_a_container_cannot_close_what_is_another_session() -> None:
    with one_instance() as (host, instance):
        container = Stateful(instance, 1)
        client = host.client()
        session = opened(client)
        instance.invoke = lambda _: Reply(200, b"", {"X-Amzn-SageMaker-Closed-Session-Id": "s-1-9"})
        assert "ClosedSessionId" not in invoke(client, SessionId=session)
        instance.invoke = container.answer
        assert add(client, session, 1) == 1


def test_an_expired_session_is_refused() -> None:
    with stateful(1) as (host, [container]):
        container.expires = "2020-02-29T12:30:00Z"
        client = host.client()
        session = invoke(client, SessionId="NEW_SESSION")["NewSessionId"].partition(";")[0]
        assert refusal(client, session) == (
            f"Session {session} of endpoint {ENDPOINT} expired at 2020-02-29T12:30:00Z. Open another one with the "
            "SessionId NEW_SESSION."
        )


def test_forged_sessions_are_not_known() -> None:
    with stateful(2) as (host, containers):
        client = host.client()
        session = opened(client)
        changed = [
            "s-0-0",
            "1",
            session[:-1] + ("1" if session[-1] != "1" else "2"),
            f"{session}0",
            session[1:],
            session.replace("AllTraffic-0", "AllTraffic-9").replace("AllTraffic-1", "AllTraffic-0"),
            f"{'f' * 10}{session[10:]}",
            f"{session[:18]}{'0' * 24}{session[42:]}",
        ]
        for forged in changed:
            assert refusal(client, forged).startswith(
                f"Session {forged} of endpoint {ENDPOINT} is not known."
            )
        assert "failed to satisfy constraint" not in refusal(client, "x" * 256)
        assert sum(sum(each.sums.values()) for each in containers) == 0


def test_a_session_whose_instance_has_left_is_lost() -> None:
    with stateful(2) as (host, containers):
        client = host.client()
        session = opened(client)
        has_it = [bool(each.sums) for each in containers].index(True)
        target = host.targets[has_it]
        host.loop.call(host.table.leave, host.variant, target)
        host.settle()
        assert refusal(client, session) == (
            f"Session {session} of endpoint {ENDPOINT} is lost, as its instance AllTraffic-{has_it} is gone. Open "
            "another one with the SessionId NEW_SESSION."
        )
        assert add(client, opened(client), 2) == 2
        host.loop.call(target.pool.close)


@one_process
def test_a_request_of_a_session_never_goes_to_another_instance() -> None:
    with instances(2) as made, runtime(variant_route("AllTraffic", made)) as host:
        containers = [Stateful(one, number) for number, one in enumerate(made)]
        client = host.client()
        session = opened(client)
        has_it = [bool(each.sums) for each in containers].index(True)
        made[has_it].close()
        assert "No response from container primary" in refusal_of(client, session)
        assert len(made[1 - has_it].seen) == 0


@one_process
def test_a_new_session_is_opened_elsewhere_if_an_instance_accepts_nothing() -> None:
    with instances(2) as made, runtime(variant_route("AllTraffic", made)) as host:
        Stateful(made[1], 1)
        made[0].close()
        client = host.client()
        assert {add(client, opened(client), 3) for _ in range(8)} == {3}


def test_a_session_is_of_one_variant() -> None:
    with (
        instances(2) as made,
        runtime(variant_route("A", made[:1], 0.0), variant_route("B", made[1:], 1.0)) as host,
    ):
        for number, one in enumerate(made):
            Stateful(one, number)
        client = host.client()
        answer = invoke(client, SessionId="NEW_SESSION", TargetVariant="A")
        session = answer["NewSessionId"].partition(";")[0]
        answer = invoke(client, b"1", SessionId=session)  # whatever the weights say
        assert answer["InvokedProductionVariant"] == "A"
        assert invoke(client, b"1", SessionId=session, TargetVariant="A")["Body"].read() == b"2"
        assert refusal(client, session, TargetVariant="B") == (
            f"Session {session} is of variant A, not of variant B"
        )


def test_a_container_that_opens_no_session_answers_all_the_same() -> None:
    with one_instance() as (host, _):
        answer = invoke(host.client(), b"x", SessionId="NEW_SESSION")
        assert answer["Body"].read() == b"x"
        assert "NewSessionId" not in answer


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "in chunks"])
@pytest.mark.parametrize(
    ("opens", "why"),
    [
        ("s-1", "expected 'ID; Expires=YYYY-MM-DDThh:mm:ssZ', got 's-1'"),
        ("s-1; Expires=tomorrow", "expected 'ID; Expires="),
        ("-s; Expires=2099-01-01T00:00:00Z", "expected 'ID; Expires="),
        ("s-1; Expires=2099-13-01T00:00:00Z", "there is no time 2099-13-01T00:00:00Z"),
        (f"{'x' * 200}; Expires={FAR}", "its id has 200 characters; at most"),
    ],
)
def test_a_container_that_opens_a_session_wrongly_is_told_so(opens: str, why: str, streamed: bool) -> None:
    with one_instance() as (host, instance):
        body = [b"x"] if streamed else b"x"
        instance.invoke = lambda _: Reply(200, body, {"X-Amzn-SageMaker-New-Session-Id": opens})
        with pytest.raises(ClientError, match="makes no sense") as caught:
            invoke(host.client(), SessionId="NEW_SESSION")
        error = caught.value.response["Error"]
        assert error["Code"] == "ModelError"
        assert why in error["Message"]


@one_process
def test_multi_model_endpoints_have_no_sessions() -> None:
    class NoResidency:
        pass

    with instances(1) as made:
        variant = variant_route("AllTraffic", made, container=Container("image", multi_model=True))
        variant.residency = NoResidency()  # type: ignore[assignment]  # nothing asks it
        with runtime(variant) as host:
            assert refusal(host.client(), "NEW_SESSION") == (
                f"Endpoint {ENDPOINT} is a multi-model endpoint, which does not support sessions."
            )


# the ids themselves


def route_of(name: str = ENDPOINT) -> Any:
    route = endpoint_route(variant_route("A", []))
    return replace(route, name=name)


@one_process
def test_ids_hold_in_every_process_that_has_the_key_and_no_other() -> None:
    route = route_of()
    token = Sessions(b"key").issue(route, "i-0", f"a; Expires={FAR}").partition(";")[0]
    again = Sessions(b"key").read(route, token)
    assert again is not None
    assert (again.id, again.instance, again.token) == ("a", "i-0", token)
    assert datetime.fromtimestamp(again.expires, UTC) == datetime(2099, 1, 1, tzinfo=UTC)
    assert Sessions(b"other").read(route, token) is None
    assert Sessions(b"key").read(route_of("another-endpoint"), token) is None


@one_process
def test_a_session_ends_when_its_container_has_said() -> None:
    now = 1_000_000.0
    sessions = Sessions(b"key", WallClock(lambda: now, lambda: now))
    end = datetime.fromtimestamp(now + 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    route = route_of()
    token = sessions.issue(route, "i-0", f"a; Expires={end}").partition(";")[0]
    now += 59.9
    assert sessions.find(route, token).id == "a"
    now += 0.2
    with pytest.raises(ApiError, match="expired at 1970-01-12T13:47:40Z"):
        sessions.find(route, token)


@one_process
def test_setting_the_clock_ends_no_session_and_those_opened_later_end_in_time() -> None:
    system, steady = 1_000_000.0, 0.0
    sessions, route = Sessions(b"key", WallClock(lambda: system, lambda: steady)), route_of()

    def opened(name: str) -> str:
        end = datetime.fromtimestamp(system + 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return sessions.issue(route, "i-0", f"{name}; Expires={end}").partition(";")[0]

    before = opened("a")
    system += 1e8
    assert sessions.find(route, before).id == "a"
    after = opened("b")
    system -= 2e8
    assert sessions.find(route, after).id == "b"
    later = opened("c")
    steady += 58
    assert [sessions.find(route, each).id for each in (before, after, later)] == ["a", "b", "c"]
    steady += 4
    for each in (before, after, later):
        with pytest.raises(ApiError, match="expired at"):
            sessions.find(route, each)


@one_process
def test_closed_session_is_closed_in_the_next_process_too(tmp_path: Path) -> None:
    route, sessions = route_of(), Sessions()
    sessions.open(tmp_path)
    kept, closed = (sessions.issue(route, "i-0", f"{name}; Expires={FAR}").partition(";")[0] for name in "ab")
    sessions.close(closed, sessions.find(route, closed).expires)
    following = Sessions()  # the first one has ended without a word
    following.open(tmp_path)
    assert following.find(route, kept).id == "a"
    with pytest.raises(ApiError, match="is closed"):
        following.find(route, closed)
    sessions.end()
    following.end()


@one_process
@given(
    st.from_regex(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,40}", fullmatch=True),
    st.from_regex(r"i-[0-9a-f]{16}", fullmatch=True),
    st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31)),
)
def test_any_id_and_time_come_back(name: str, instance: str, end: datetime) -> None:
    sessions, route = Sessions(b"key"), route_of()
    said = f"{end.year:04}-{end:%m-%dT%H:%M:%SZ}"
    try:
        told = sessions.issue(route, instance, f"{name}; Expires={said}")
    except SessionError:
        assert len(name) > 150
        return
    token, _, rest = told.partition("; ")
    assert rest == f"Expires={said}"
    assert re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*; Expires=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", told)
    session = sessions.read(route, token)
    assert session is not None
    assert (session.id, session.instance) == (name, instance)


@one_process
@given(st.from_regex(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,120}", fullmatch=True))
def test_no_id_that_was_not_given_is_known(token: str) -> None:
    assert Sessions(b"key").read(route_of(), token) is None
