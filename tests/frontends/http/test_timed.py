from unittest.mock import Mock

from halimede.frontends.http.timed import TimedExchange
from halimede.frontends.request_log.entry import Entry
from halimede.frontends.traffic import CLIENT_GONE, new_counts
from halimede.http1.head import parse_head


def test_a_response_that_comes_after_the_client_has_left_does_not_change_what_is_logged() -> None:
    head = parse_head(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert head is not None
    logged: list[Entry] = []
    connection = Mock(counts=new_counts(), client="127.0.0.1:1")
    exchange = TimedExchange(Mock(add=logged.append), "HTTP", connection, head, memoryview(b""))
    exchange.lost()
    ended_ns = logged[0].ended_ns

    exchange.respond(200)

    assert [(entry.status, entry.ended_ns) for entry in logged] == [(CLIENT_GONE, ended_ns)]
    connection.reply_ready.assert_not_called()
