"""Requests that a web page anywhere could make a browser on the host's machine send, as bytes on a socket."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from halimede.core.origins import OriginPolicy
from halimede.hosting.access.keys import Key
from halimede.hosting.access.web_pages import WebPageGuard
from halimede.http1.head import Head
from tests.frontends.http.serving import Answer, Client
from tests.hosting.api.serving import SECRET, ApiHost, api_host
from tests.hosting.instances import fake_instance
from tests.hosting.store.serving import StoreHost, store_host

EVIL = "http://evil.example"
FRIEND = "https://app.example"
FORM = "Action=GetCallerIdentity&Version=2011-06-15"
MODEL = '{"ModelName": "m", "PrimaryContainer": {"Image": "/bin/sh"}}'
CREATE = "X-Amz-Target: SageMaker.CreateModel"

HOST_REFUSAL = (
    "the Host header says 'evil.example', which is no name of this host; to allow it, start the host with "
    "--allow-host"
)
ORIGIN_REFUSAL = (
    "the request comes from a web page of the origin 'http://evil.example'; to allow it, start the host with "
    "--allow-origin"
)


@pytest.fixture
def host() -> Iterator[ApiHost]:
    with api_host(
        policy=OriginPolicy([], [FRIEND]), pages={"/ping": lambda request: request.respond(200)}
    ) as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreHost]:
    with store_host(tmp_path / "store", policy=OriginPolicy([], [FRIEND])) as running:
        running.client().create_bucket(Bucket="models")
        running.client().put_object(Bucket="models", Key="model.tar.gz", Body=b"good")
        yield running


def stored(store: StoreHost) -> bytes:
    body: bytes = store.client().get_object(Bucket="models", Key="model.tar.gz")["Body"].read()
    return body


def ask(port: int, line: str, *headers: str, body: str = "", host: str = "localhost") -> Answer:
    """The answer to a request that names the host `host`."""
    lines = (f"{line} HTTP/1.1", f"Host: {host}", *headers, f"Content-Length: {len(body)}", "", body)
    with Client(port) as client:
        return client.ask("\r\n".join(lines).encode("latin-1"), line.partition(" ")[0])


# Host


def test_a_page_whose_name_stands_for_this_machine_creates_no_model(host: ApiHost) -> None:
    for name in ("evil.example", "EVIL.example:8088", "localhost.evil.example", "127.0.0.1.evil.example"):
        answer = ask(host.port, "POST /", CREATE, f"Origin: http://{name}", body=MODEL, host=name)
        assert answer.status == 403, name
        assert b'"__type":"AccessDeniedException"' in answer.body
    assert host.calls == []


@pytest.mark.parametrize(
    ("line", "headers", "body", "expected"),
    [
        ("POST /", [CREATE], MODEL, '{"__type":"AccessDeniedException","message":"%s"}'),
        ("POST /", ["smithy-protocol: rpc-v2-cbor"], "", '{"__type":"AccessDeniedException","message":"%s"}'),
        ("POST /endpoints/e/invocations", [], "{}", '{"ErrorCode":"AccessDeniedException","Message":"%s"}'),
        ("POST /", ["Content-Type: application/x-www-form-urlencoded"], FORM, "<Code>AccessDenied</Code>"),
        ("PUT /models/a", [], "evil", "<Code>AccessDenied</Code><Message>"),
        ("GET /ping", [], "", "%s"),
    ],
)
def test_each_service_says_in_its_own_words_that_the_name_is_unknown(
    host: ApiHost, line: str, headers: list[str], body: str, expected: str
) -> None:
    answer = ask(host.port, line, *headers, body=body, host="evil.example")
    assert answer.status == 403
    text = answer.body.decode().replace("&apos;", "'").replace("&#x27;", "'")
    assert expected.replace("%s", HOST_REFUSAL) in text
    assert HOST_REFUSAL in text
    assert (host.calls, host.stored) == ([], [])


@pytest.mark.parametrize(
    "name",
    [
        "localhost",
        "LOCALHOST:8088",
        "127.0.0.1:1",
        "[::1]:8088",
        "192.0.2.7",
        "models.localhost",
        "",
        "localhost.",
    ],
)
def test_names_of_this_machine_are_known(host: ApiHost, name: str) -> None:
    assert (
        ask(host.port, "POST /", "X-Amz-Target: SageMaker.ListEndpoints", body="{}", host=name).status == 200
    )


def test_the_machine_s_own_name_is_known(host: ApiHost) -> None:
    assert ask(host.port, "GET /ping", host=socket.gethostname()).status == 200


def test_further_names_are_allowed_by_a_flag() -> None:
    with api_host(policy=OriginPolicy(["host.lan"])) as host:
        listing = "X-Amz-Target: SageMaker.ListEndpoints"
        assert ask(host.port, "POST /", listing, body="{}", host="host.lan:8088").status == 200
        assert ask(host.port, "POST /", listing, body="{}", host="other.lan").status == 403


def test_a_host_that_listens_everywhere_is_no_more_open_to_pages() -> None:
    with api_host(address="0.0.0.0") as host:
        assert ask(host.port, "POST /", CREATE, body=MODEL, host="evil.example").status == 403
        assert host.calls == []


@pytest.mark.parametrize("names", [("localhost", "evil.example"), ("evil.example", "localhost"), ("h", "h")])
def test_two_hosts_are_refused(host: ApiHost, names: tuple[str, str]) -> None:
    answer = ask(host.port, "POST /", f"Host: {names[1]}", CREATE, body=MODEL, host=names[0])
    assert answer.status == 400
    assert b"the request has two Host headers" in answer.body
    assert host.calls == []


# Origin


@pytest.mark.parametrize(
    "origin",
    [EVIL, "null", "https://localhost:8443", "http://localhost:8088", "", "https://app.example.evil"],
)
def test_pages_of_foreign_origins_change_nothing(host: ApiHost, origin: str) -> None:
    for line, headers, body in (
        ("POST /", [CREATE, "Content-Type: text/plain"], MODEL),
        ("POST /", ["Content-Type: application/x-www-form-urlencoded"], FORM),
        ("POST /endpoints/e/invocations", ["Content-Type: text/plain"], "{}"),
        ("POST /models/model.tar.gz?uploads", [], ""),
        ("PUT /models/model.tar.gz", [], "evil"),
        ("DELETE /models/model.tar.gz", [], ""),
    ):
        answer = ask(host.port, line, f"Origin: {origin}", *headers, body=body)
        assert answer.status == 403, line
        assert b"--allow-origin" in answer.body
        assert "access-control-allow-origin" not in answer.headers
    assert (host.calls, host.stored) == ([], [])


def test_the_refusal_of_an_origin_names_the_flag(host: ApiHost) -> None:
    answer = ask(host.port, "POST /endpoints/e/invocations", f"Origin: {EVIL}", body="{}")
    assert answer.body.decode() == f'{{"ErrorCode":"AccessDeniedException","Message":"{ORIGIN_REFUSAL}"}}'


def test_a_foreign_page_overwrites_no_archive(store: StoreHost) -> None:
    for host in ("localhost", "models.localhost", "127.0.0.1"):
        path = "/model.tar.gz" if host.startswith("models") else "/models/model.tar.gz"
        answer = ask(store.port, f"PUT {path}", f"Origin: {EVIL}", body="evil", host=host)
        assert answer.status == 403
        assert b"<Code>AccessDenied</Code>" in answer.body
    assert ask(store.port, "PUT /models/model.tar.gz", body="evil", host="evil.example").status == 403
    assert ask(store.port, "PUT /model.tar.gz", body="evil", host="models.evil.example").status == 403
    assert stored(store) == b"good"


def test_buckets_as_host_names_go_on_working(store: StoreHost) -> None:
    answer = ask(store.port, "PUT /model.tar.gz", body="new", host=f"models.localhost:{store.port}")
    assert answer.status == 200
    assert stored(store) == b"new"


def test_presigned_urls_go_on_working(store: StoreHost) -> None:
    url = store.client().generate_presigned_url(
        "put_object", Params={"Bucket": "models", "Key": "model.tar.gz"}, ExpiresIn=60
    )
    target = url.removeprefix(store.endpoint)
    assert ask(store.port, f"PUT {target}", f"Origin: {EVIL}", body="evil").status == 403
    assert stored(store) == b"good"
    assert ask(store.port, f"PUT {target}", body="new").status == 200
    assert stored(store) == b"new"


def test_reads_of_foreign_pages_are_answered_without_leave_to_read_them(store: StoreHost) -> None:
    answer = ask(store.port, "GET /models/model.tar.gz", f"Origin: {EVIL}")
    assert (answer.status, answer.body) == (200, b"good")
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_signed_requests_of_foreign_pages_are_refused_before_anything_else() -> None:
    with api_host({"A": Key("A", SECRET)}) as host:
        assert b"--allow-origin" in ask(host.port, "POST /", CREATE, f"Origin: {EVIL}", body=MODEL).body


# pages of the host itself


def test_the_console_invokes_endpoints_and_nothing_else(host: ApiHost, store: StoreHost) -> None:
    with fake_instance() as instance:
        host.publish("e", instance.port, "000000000000", "us-east-1")
        own = "localhost:8088"
        answer = ask(
            host.port, "POST /endpoints/e/invocations", f"Origin: http://{own}", body="hello", host=own
        )
        assert (answer.status, answer.body) == (200, b"hello")
        assert "access-control-allow-origin" not in answer.headers
        for other in ("http://localhost", "http://localhost:8089", "null", EVIL):
            refused = ask(
                host.port, "POST /endpoints/e/invocations", f"Origin: {other}", body="hello", host=own
            )
            assert refused.status == 403, other
    assert ask(host.port, "POST /", CREATE, f"Origin: http://{own}", body=MODEL, host=own).status == 403
    assert host.calls == []
    assert (
        ask(store.port, "PUT /models/model.tar.gz", f"Origin: http://{own}", body="evil", host=own).status
        == 403
    )
    assert stored(store) == b"good"


def test_a_page_whose_name_stands_for_this_machine_invokes_nothing(host: ApiHost) -> None:
    evil = "evil.example:8088"
    answer = ask(host.port, "POST /endpoints/e/invocations", f"Origin: http://{evil}", body="{}", host=evil)
    assert answer.status == 403


def test_objects_are_no_pages_of_the_host(store: StoreHost) -> None:
    answer = ask(store.port, "GET /models/model.tar.gz")
    assert answer.headers["content-security-policy"] == "sandbox allow-scripts"


# allowed origins


def preflight(port: int, origin: str, path: str = "/", *headers: str) -> Answer:
    return ask(port, f"OPTIONS {path}", f"Origin: {origin}", "Access-Control-Request-Method: POST", *headers)


def test_a_preflight_of_an_allowed_origin_says_what_may_be_sent(host: ApiHost) -> None:
    wanted = "authorization, x-amz-target, content-type"
    answer = preflight(host.port, FRIEND, "/", f"Access-Control-Request-Headers: {wanted}")
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == FRIEND
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST, PUT, DELETE"
    assert answer.headers["access-control-allow-headers"] == wanted
    assert int(answer.headers["access-control-max-age"]) > 0
    assert answer.headers["vary"] == "Origin"


def test_a_preflight_needs_no_signature() -> None:
    with api_host({"A": Key("A", SECRET)}, policy=OriginPolicy([], ["*"])) as host:
        assert preflight(host.port, EVIL).status == 204
        refused = ask(host.port, "POST /", CREATE, f"Origin: {EVIL}", body=MODEL)
        assert refused.status == 403
        assert refused.headers["access-control-allow-origin"] == EVIL  # so that the page can say why


def test_a_preflight_of_a_foreign_origin_is_refused(host: ApiHost) -> None:
    answer = preflight(host.port, EVIL)
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers


def test_allowed_pages_call_services_and_read_the_answers(host: ApiHost) -> None:
    answer = ask(host.port, "POST /", "X-Amz-Target: SageMaker.ListEndpoints", f"Origin: {FRIEND}", body="{}")
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == FRIEND
    assert answer.headers["access-control-expose-headers"] == "*"


def test_allowed_pages_invoke_endpoints_and_read_the_answers(host: ApiHost) -> None:
    with fake_instance() as instance:
        host.publish("e", instance.port, "000000000000", "us-east-1")
        answer = ask(host.port, "POST /endpoints/e/invocations", f"Origin: {FRIEND}", body="hello")
    assert (answer.status, answer.body) == (200, b"hello")
    assert answer.headers["access-control-allow-origin"] == FRIEND


def test_allowed_pages_write_and_read_objects(store: StoreHost) -> None:
    for line in ("PUT /models/model.tar.gz", "GET /models/model.tar.gz", "HEAD /models/model.tar.gz"):
        answer = ask(store.port, line, f"Origin: {FRIEND}", body="new" if line.startswith("PUT") else "")
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == FRIEND
    assert stored(store) == b"new"


# any Host and any Origin


@pytest.fixture(scope="module")
def quiet() -> Iterator[ApiHost]:
    with api_host(policy=OriginPolicy([], [FRIEND])) as running:
        yield running


WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="\x7f"), max_size=300)
ALMOST = st.tuples(WORDS, st.sampled_from(["localhost", "127.0.0.1", "[::1]", "evil.example"]), WORDS).map(
    "".join
)


@settings(deadline=None, max_examples=60)
@given(name=WORDS | ALMOST, origin=WORDS | ALMOST)
@example(name="localhost", origin=FRIEND + ".evil")
@example(name="[::1", origin="http://[")
@example(name="a" * 300 + ".localhost", origin="null")
@example(name="localhost,evil.example", origin=FRIEND)
def test_no_host_with_any_other_origin_changes_anything(quiet: ApiHost, name: str, origin: str) -> None:
    answer = ask(quiet.port, "POST /", CREATE, f"Origin: {origin}", body=MODEL, host=name)
    assert answer.status in {400, 403}
    assert quiet.calls == []


def test_heads_that_differ_do_not_pile_up(host: ApiHost) -> None:
    guard = WebPageGuard(OriginPolicy())
    for number in range(2000):
        head = Head("POST", "/", {"host": f"{number}" * 1000}, (), "1.1")
        assert guard.judge(head, from_loopback=True) is not None
    sizes = [len(name) for name in guard._is_known]  # noqa: SLF001 - its size shows nowhere else
    assert len(sizes) <= 512
    assert max(sizes) <= 256
