"""What a page anywhere on the web can make a browser send, as bytes on a socket."""

import json
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.core.origins import OriginPolicy
from halimede.frontends.http.settings import HttpLimits
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.http.transport.web_access import WebAccess
from halimede.http1.head import Head, Refusal
from tests.frontends.http.serving import Answer, Served, echo, serve

EVIL = "http://evil.example"
GOOD = "https://app.example"
POLICY = OriginPolicy(hosts=["models.example"], origins=[GOOD])


def request(*headers: str, method: str = "POST", body: bytes = b"x", version: str = "1.1") -> bytes:
    lines = [f"{method} /echo HTTP/{version}", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(echo, access=WebAccess(POLICY)) as running:
        yield running


def ask(served: Served, data: bytes, method: str = "POST") -> Answer:
    with served.client() as client:
        return client.ask(data, method)


def refusal(answer: Answer, status: int = 403) -> str:
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    document = json.loads(answer.body)
    assert list(document) == ["error"]
    return str(document["error"])


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "HEAD", "OPTIONS"])
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example"]
)
def test_a_host_that_is_no_name_of_this_machine_is_refused(served: Served, host: str, method: str) -> None:
    answer = ask(served, request(f"Host: {host}", method=method), method)
    assert answer.status == 403
    if method != "HEAD":
        assert "--allow-host=NAME" in refusal(answer)
        assert host in refusal(answer)


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST:1", "models.example:8000", "10.0.0.1"]
)
def test_names_and_addresses_of_this_machine_are_served(served: Served, host: str) -> None:
    assert ask(served, request(f"Host: {host}")).status == 200


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_request_without_host_is_no_browsers_and_served(served: Served, version: str) -> None:
    assert ask(served, request(version=version)).body == b"POST /echo x"


@pytest.mark.parametrize(
    "hosts", [("evil.example", "localhost"), ("localhost", "evil.example"), ("localhost", "localhost")]
)
def test_two_host_headers_are_refused(served: Served, hosts: tuple[str, str]) -> None:
    answer = ask(served, request(*(f"Host: {host}" for host in hosts)))
    assert refusal(answer, 400) == "the request has two Host headers; one is allowed"


def test_a_later_request_on_the_connection_is_looked_at_too(served: Served) -> None:
    with served.client() as client:
        for host, status in [("localhost", 200), ("localhost", 200), ("evil.example", 403)]:
            assert client.ask(request(f"Host: {host}")).status == status
        assert client.read_to_end() == b""


def test_pipelined_requests_are_answered_up_to_the_refused_one(served: Served) -> None:
    good, bad = request("Host: localhost"), request("Host: localhost", f"Origin: {EVIL}")
    data = served.talk(good + bad + good)
    assert [data.count(b"HTTP/1.1 %d " % status) for status in (200, 403)] == [1, 1]


def test_a_host_that_spells_the_flag_but_is_huge_is_not_repeated_whole(served: Served) -> None:
    text = refusal(ask(served, request("Host: " + "e" * 5000)))
    assert "e" * 100 in text
    assert "e" * 101 not in text


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT", "OPTIONS"])
@pytest.mark.parametrize(
    "origin", [EVIL, "null", "", "http://localhost:3000", f"{GOOD}:444", f"{GOOD}, {EVIL}", "file://"]
)
def test_a_page_elsewhere_may_not_change_or_infer_anything(served: Served, origin: str, method: str) -> None:
    answer = ask(served, request("Host: localhost:8000", f"Origin: {origin}", method=method))
    assert "--allow-origin=ORIGIN" in refusal(answer)
    assert "access-control-allow-origin" not in answer.headers


def test_two_origins_of_which_one_is_allowed_are_refused(served: Served) -> None:
    answer = ask(served, request("Host: localhost", f"Origin: {GOOD}", f"Origin: {EVIL}"))
    assert answer.status == 403


def test_no_handler_is_called_for_a_refused_request_and_its_body_is_not_waited_for() -> None:
    called: list[Exchange] = []
    with serve(called.append, access=WebAccess(POLICY)) as served, served.client() as client:
        client.send(
            f"POST / HTTP/1.1\r\nHost: localhost\r\nOrigin: {EVIL}\r\nContent-Length: 1000000\r\n\r\n".encode()
        )
        assert "--allow-origin" in refusal(client.read())
    assert not called


def test_a_page_elsewhere_can_have_read_what_its_browser_will_not_show_it(served: Served) -> None:
    answer = ask(served, request("Host: localhost", f"Origin: {EVIL}", method="GET", body=b""))
    assert (answer.status, set(answer.headers)) == (200, {"content-type", "content-length"})


def test_a_page_that_this_server_serves_is_allowed(served: Served) -> None:
    answer = ask(served, request("Host: localhost:8000", "Origin: http://localhost:8000"))
    assert (answer.status, set(answer.headers)) == (200, {"content-type", "content-length"})


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_allowed_page_gets_to_read_the_response(served: Served, method: str) -> None:
    with served.client() as client:
        for _ in range(2):
            answer = client.ask(request("Host: localhost", f"Origin: {GOOD}", method=method))
            assert (answer.status, answer.body) == (200, f"{method} /echo x".encode())
            assert answer.headers["access-control-allow-origin"] == GOOD
            assert answer.headers["vary"] == "Origin"
            assert "Inference-Header-Content-Length" in answer.headers["access-control-expose-headers"]
        plain = client.ask(request("Host: localhost"))
        assert "access-control-allow-origin" not in plain.headers
        last = client.ask(request("Host: localhost", f"Origin: {GOOD}", "Connection: close"))
        assert (last.headers["connection"], last.headers["access-control-allow-origin"]) == ("close", GOOD)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_allowed_page_gets_to_read_a_stream(version: str) -> None:
    def handle(exchange: Exchange) -> None:
        stream = exchange.stream(200, "text/event-stream")
        stream.write(b"data: 1\n\n")
        stream.end()

    with serve(handle, access=WebAccess(POLICY)) as served:
        answer = ask(served, request("Host: localhost", f"Origin: {GOOD}", version=version))
    assert (answer.body, answer.headers["access-control-allow-origin"]) == (b"data: 1\n\n", GOOD)


def preflight(*headers: str, origin: str = GOOD) -> bytes:
    asked = ("Host: localhost", f"Origin: {origin}", "Access-Control-Request-Method: POST", *headers)
    return request(*asked, method="OPTIONS", body=b"")


def test_a_preflight_is_answered_without_the_handler_and_the_connection_kept(served: Served) -> None:
    with served.client() as client:
        asked = "Access-Control-Request-Headers: content-type,inference-header-content-length"
        answer = client.ask(preflight(asked))
        assert (answer.status, answer.body) == (200, b"")
        headers = {name: value for name, value in answer.headers.items() if name.startswith("access-control")}
        assert headers == {
            "access-control-allow-origin": GOOD,
            "access-control-allow-methods": "GET, HEAD, POST, DELETE",
            "access-control-allow-headers": "content-type,inference-header-content-length",
            "access-control-max-age": "7200",
        }
        assert answer.headers["vary"].startswith("Origin")
        assert client.ask(request("Host: localhost", f"Origin: {GOOD}")).status == 200


def test_a_preflight_on_the_last_request_closes_the_connection(served: Served) -> None:
    with served.client() as client:
        assert client.ask(preflight("Connection: close")).headers["connection"] == "close"
        assert client.read_to_end() == b""


def test_a_preflight_from_a_public_page_to_a_private_network_is_answered(served: Served) -> None:
    answer = ask(served, preflight("Access-Control-Request-Private-Network: true"))
    assert answer.headers["access-control-allow-private-network"] == "true"


def test_a_preflight_repeats_only_names_of_headers(served: Served) -> None:
    answer = ask(served, preflight("Access-Control-Request-Headers: <script>; a b"))
    assert "access-control-allow-headers" not in answer.headers


def test_a_preflight_of_a_foreign_page_is_refused(served: Served) -> None:
    assert "--allow-origin" in refusal(ask(served, preflight(origin=EVIL)))


def test_a_preflight_with_a_body_is_refused(served: Served) -> None:
    assert (
        refusal(ask(served, preflight("Content-Length: 3") + b"abc"), 400) == "a CORS preflight has no body"
    )


def test_too_many_headers_are_told_before_their_origin() -> None:
    with serve(echo, HttpLimits(headers=3), access=WebAccess(POLICY)) as served:
        answer = ask(served, request("Host: localhost", f"Origin: {EVIL}", "A: 1", "B: 2"))
    assert answer.status == 431


class Counting(WebAccess):
    """Counts the heads that were looked at."""

    def __init__(self) -> None:
        super().__init__(POLICY)
        self.looks = 0

    def check(self, head: Head, peer: str) -> tuple[tuple[str, str], ...]:
        self.looks += 1
        return super().check(head, peer)


def test_a_head_that_a_connection_repeats_is_looked_at_once() -> None:
    access = Counting()
    with serve(echo, access=access) as served, served.client() as client:
        for _ in range(5):
            assert client.ask(request("Host: localhost")).status == 200
    assert access.looks == 1


def check(peer: str, *headers: str, method: str = "POST") -> tuple[tuple[str, str], ...]:
    sent = [(name, value) for name, _, value in (header.partition(": ") for header in headers)]
    head = Head(method, "/", {name.lower(): value for name, value in sent}, sent, "1.1")
    return WebAccess(POLICY).check(head, peer)


@pytest.mark.parametrize("peer", ["10.0.0.2", "::ffff:10.0.0.2", "fe80::1%eth0", "unknown"])
def test_clients_elsewhere_may_know_this_machine_by_any_name(peer: str) -> None:
    assert check(peer, "Host: evil.example") == ()
    with pytest.raises(Refusal, match="--allow-origin"):
        check(peer, "Host: evil.example", f"Origin: {EVIL}")
    with pytest.raises(
        Refusal, match="--allow-origin"
    ):  # an attacker's DNS lets its own name stand for this machine
        check(peer, "Host: evil.example", "Origin: http://evil.example")


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_clients_on_this_machine_use_its_names(peer: str) -> None:
    with pytest.raises(Refusal, match="--allow-host"):
        check(peer, "Host: evil.example")


def test_no_browser_reaches_a_unix_socket() -> None:
    assert check("", "Host: evil.example", f"Origin: {EVIL}") == ()


LATIN = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=300)
NAMES = st.sampled_from(
    ["localhost", "127.0.0.1", "[::1]", "evil.example", "models.example", EVIL, GOOD, "null", "*"]
)
VALUES = st.lists(
    NAMES | LATIN | st.sampled_from([":", ".", "@", "//", "]", "[", "%", " ", "8000", ","]), max_size=4
)


def joined(parts: list[str]) -> str:
    return "".join(parts)


@pytest.mark.parametrize("peer", ["127.0.0.1", "10.0.0.2"])
@given(host=VALUES.map(joined), origin=VALUES.map(joined))
@settings(max_examples=100, deadline=None)
def test_no_origin_but_the_allowed_and_the_servers_own_gets_through(
    peer: str, host: str, origin: str
) -> None:
    def admitted(origin_text: str) -> bool:
        try:
            check(peer, f"Host: {host}", f"Origin: {origin_text}")
        except Refusal:
            return False
        return True

    if admitted(origin) and origin.rstrip("/").lower() != GOOD:
        assert POLICY.knows_host(host)
        assert origin.lower().partition("://")[2] == host.strip().lower()


@given(before=LATIN, after=LATIN)
@settings(max_examples=100, deadline=None)
def test_nothing_around_an_attackers_name_makes_it_known(before: str, after: str) -> None:
    host = f"{before}evil.example{after}"
    name = host.strip().lower()
    if not name.rstrip(".").partition(":")[0].endswith(".localhost"):
        with pytest.raises(Refusal, match="--allow-host"):
            check("127.0.0.1", f"Host: {host}")


@given(host=LATIN, origin=LATIN, method=st.sampled_from(["GET", "POST", "OPTIONS"]))
@settings(max_examples=100, deadline=None)
def test_any_host_and_origin_are_answered(
    echoing: Callable[[bytes], bytes], host: str, origin: str, method: str
) -> None:
    answer = echoing(request(f"Host: {host}", f"Origin: {origin}", method=method))
    status = int(answer.split(b" ", 2)[1])
    assert status in (200, 400, 403)
    if method != "GET":
        assert status != 200


@pytest.fixture(scope="module")
def echoing(served: Served) -> Callable[[bytes], bytes]:
    return served.talk
