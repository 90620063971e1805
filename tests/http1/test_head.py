import pytest

from halimede.http1.head import MEMO_HEADS, Refusal, check_beginning, parse_head


def head(*lines: str) -> bytes:
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def test_head_gives_method_path_and_lower_case_headers() -> None:
    parsed = parse_head(head("POST /v2/x?query#part HTTP/1.1", "Content-Length: 12", "X-Some: Value "))
    assert parsed is not None
    assert (parsed.method, parsed.path, parsed.length) == ("POST", "/v2/x", 12)
    assert parsed.headers == {"content-length": "12", "x-some": "Value"}
    assert parsed.sent == [("Content-Length", "12"), ("X-Some", "Value ")]


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/models", "/models", ""),
        ("/models?", "/models", ""),
        ("/models?limit=5&token=a%20b#part", "/models", "limit=5&token=a%20b"),
        ("/a?b?c", "/a", "b?c"),
        ("/a#b?c", "/a", ""),
        ("http://host:1/models?limit=5#part", "/models", "limit=5"),
        ("http://host:1?limit=5", "/", "limit=5"),
    ],
)
def test_query_is_what_follows_the_question_mark(target: str, path: str, query: str) -> None:
    parsed = parse_head(head(f"GET {target} HTTP/1.1"))
    assert parsed is not None
    assert (parsed.path, parsed.query) == (path, query)


def test_path_is_not_decoded() -> None:
    parsed = parse_head(head("GET /v2/a%2Fb HTTP/1.1"))
    assert parsed is not None
    assert parsed.path == "/v2/a%2Fb"


def test_absolute_url_gives_its_path() -> None:
    parsed = parse_head(head("GET http://host:8000/v2?x HTTP/1.1"))
    assert parsed is not None
    assert parsed.path == "/v2"


def test_repeated_headers_are_joined() -> None:
    parsed = parse_head(head("GET / HTTP/1.1", "A: 1", "a: 2"))
    assert parsed is not None
    assert parsed.headers == {"a": "1, 2"}
    assert parsed.count == 2


def test_empty_lines_are_no_request() -> None:
    assert parse_head(b"\r\n\r\n") is None


@pytest.mark.parametrize(
    ("version", "connection", "keep_alive"),
    [
        ("1.1", "", True),
        ("1.1", "close", False),
        ("1.1", "TE, Close", False),
        ("1.0", "", False),
        ("1.0", "Keep-Alive", True),
    ],
)
def test_connection_is_kept_as_its_version_and_header_say(
    version: str, connection: str, keep_alive: bool
) -> None:
    lines = [f"GET / HTTP/{version}"] + ([f"Connection: {connection}"] if connection else [])
    parsed = parse_head(head(*lines))
    assert parsed is not None
    assert parsed.keep_alive is keep_alive


@pytest.mark.parametrize(("version", "keep_alive"), [("1.0", False), ("1.1", True)])
def test_chunks_in_http_1_0_end_the_connection(version: str, keep_alive: bool) -> None:
    lines = (f"POST / HTTP/{version}", "Connection: keep-alive", "Transfer-Encoding: chunked")
    parsed = parse_head(head(*lines))
    assert parsed is not None
    assert parsed.keep_alive is keep_alive
    assert parsed.connection == ""


def test_offer_to_upgrade_is_declined() -> None:
    lines = ("POST / HTTP/1.1", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "Content-Length: 3")
    parsed = parse_head(head(*lines))
    assert parsed is not None
    assert parsed.length == 3


@pytest.mark.parametrize(("digits", "length"), [("0" * 5001, 0), ("0" * 5001 + "17", 17), ("017", 17)])
def test_zeros_in_front_of_a_length_count_for_nothing(digits: str, length: int) -> None:
    parsed = parse_head(head("POST / HTTP/1.1", f"Content-Length: {digits}"))
    assert parsed is not None
    assert parsed.length == length


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("NONSENSE",), 400),
        (("GET / HTTP/1.1", "no colon"), 400),
        (("GET / HTTP/1.1", "Content-Length: 3", "Content-Length: 4"), 400),
        (("GET / HTTP/1.1", "Content-Length: -1"), 400),
        (("GET / HTTP/1.1", "Content-Length: 0x10"), 400),
        (("GET / HTTP/1.1", "Content-Length: 99999999999999999999999"), 400),
        (("GET / HTTP/1.1", f"Content-Length: {'9' * 5001}"), 400),
        (("GET / HTTP/1.1", "Content-Length: 3", "Transfer-Encoding: chunked"), 400),
        (("GET / HTTP/1.1", "Transfer-Encoding: gzip"), 400),
        (("GET / HTTP/1.1", "Transfer-Encoding: gzip, chunked"), 501),
        (("GET / HTTP/3.0",), 400),
        (("GET / HTTP/0.9",), 505),
        (("GET / HTTP/1.1", "Expect: wonders"), 417),
        (("GET http://[bad/ HTTP/1.1",), 400),
        (("GET / HTTP/1.1", "Folded: a", " b"), 400),
    ],
)
def test_malformed_head_is_refused(lines: tuple[str, ...], status: int) -> None:
    with pytest.raises(Refusal) as refusal:
        parse_head(head(*lines))
    assert refusal.value.status == status


def test_line_ends_without_carriage_return_are_refused() -> None:
    with pytest.raises(Refusal):
        parse_head(b"GET / HTTP/1.1\nHost: x\n\nGET /smuggled HTTP/1.1\r\n\r\n")


def test_equal_heads_are_parsed_once() -> None:
    data = head("GET /remembered HTTP/1.1")
    assert MEMO_HEADS[data] is MEMO_HEADS[bytes(bytearray(data))]


def test_tls_is_recognised_by_its_first_bytes() -> None:
    with pytest.raises(Refusal, match="malformed HTTP request"):
        check_beginning(b"\x16\x03\x01\x02\x00\x01")


def test_beginning_of_a_request_is_accepted() -> None:
    for beginning in (b"POS", b"\r\n"):
        check_beginning(beginning)
        with pytest.raises(Refusal, match="malformed HTTP request"):
            check_beginning(b"\x16\x03\x01" + beginning)
