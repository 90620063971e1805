"""Servers that break off, are overloaded, or send something else than was offered."""

import socket
import time

import pytest

from tests.hosting.substrates.node.serving import MIB, ArchiveServer, Asked, Fault, Handler, archive
from tests.hosting.substrates.node.taking import Taking


def serving(**changes: object) -> Fault:
    """A server that serves, but for what is said."""
    return lambda handler, asked: handler.serve(asked, **changes)  # type: ignore[arg-type]


def refusing(status: int, text: str = "not now") -> Fault:
    """A server that refuses."""
    return lambda handler, _: handler.refuse(status, text)


def hanging_up(handler: Handler, _: Asked) -> None:
    """A server that closes the connection without an answer."""
    handler.connection.shutdown(socket.SHUT_RDWR)


def test_a_connection_that_breaks_is_resumed_where_it_broke(server: ArchiveServer, node: Taking) -> None:
    data = archive(2 * MIB)
    server.faults = [serving(upto=MIB), hanging_up, serving(upto=MIB + 5)]
    model = node.take(server.offer(data)).directory
    assert (model / "simple/1/weights").stat().st_size == 2 * MIB
    assert [asked.range for asked in server.asked] == [
        "",
        f"bytes={MIB}-",
        f"bytes={MIB}-",
        f"bytes={MIB + 5}-",
    ]
    assert server.sent == len(data)
    assert node.progress == sorted(node.progress)


def test_an_overloaded_server_is_asked_again_after_growing_pauses(
    server: ArchiveServer, node: Taking
) -> None:
    times = []

    def refuse(handler: Handler, _: Asked) -> None:
        times.append(time.monotonic())
        handler.refuse(503, "slow down")

    def serve(handler: Handler, asked: Asked) -> None:
        times.append(time.monotonic())
        handler.serve(asked)

    server.faults = [refuse, refuse, serve]
    node.take(server.offer(archive(1000)))
    first, second = times[1] - times[0], times[2] - times[1]
    assert 0.1 < first < second


def test_a_server_that_stays_overloaded_is_named_when_time_is_up(server: ArchiveServer, node: Taking) -> None:
    server.faults = [refusing(503, "slow down")] * 100
    message = node.refusal(server.offer(archive(1000)), 0.7).message
    assert "it took longer than 0.7 seconds" in message
    assert "the server answers 503: slow down" in message


def test_a_server_that_cannot_be_reached(server: ArchiveServer, node: Taking) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/model"
    assert "Connection refused" in node.refusal(server.offer(archive(1000), url=url), 0.5).message


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (412, "it was replaced after it was offered (not now). Try again"),
        (404, "it was removed after it was offered (not now)"),
        (403, "it may not be read (not now). Try again: offers expire after some hours"),
        (301, "the server answers 301 (not now)"),
    ],
)
def test_what_will_not_come_is_not_asked_for_again(
    server: ArchiveServer, node: Taking, status: int, expected: str
) -> None:
    data = archive(MIB)
    server.faults = [serving(upto=1000), refusing(status)]
    error = node.refusal(server.offer(data))
    assert error.code == "ValidationException"
    assert error.message.startswith(
        "Failed to download model data (bucket: models, key: model.tar.gz): " + expected
    )
    assert len(server.asked) == 2
    server.asked.clear()
    node.take(server.offer(data))
    # what was replaced or removed is of no use any more
    assert [asked.range for asked in server.asked] == ["" if status in (412, 404) else "bytes=1000-"]


def test_messages_of_s3_are_passed_on(server: ArchiveServer, node: Taking) -> None:
    text = (
        "<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Request has\nexpired</Message></Error>"
    )
    server.faults = [refusing(403, text)]
    assert "(Request has expired)" in node.refusal(server.offer(archive(1000))).message


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"etag": "v2", "match": False}, "its ETag is 'v2', where 'v1' was offered"),
        ({"length": 1000}, "1,000 bytes come, where"),
        ({"length": 10 * MIB}, "10,485,760 bytes come, where"),
    ],
)
def test_what_is_not_what_was_offered_is_fetched_afresh_once(
    server: ArchiveServer, node: Taking, change: dict[str, object], expected: str
) -> None:
    data = archive(MIB)
    server.faults = [serving(upto=1000), serving(**change)]
    node.take(server.offer(data)).release()
    assert [asked.range for asked in server.asked] == ["", "bytes=1000-", ""]

    server.faults = [serving(**change), serving(**change)]
    error = node.refusal(server.offer(data, "other"))
    assert "it is not what was offered: " + expected in error.message
    assert len(server.asked) == 5
    assert [name.partition("-")[0] for name in node.names()] == ["model"]


def test_an_offer_that_is_wrong_about_the_size(server: ArchiveServer, node: Taking) -> None:
    data = archive(MIB)
    assert f"{len(data):,} bytes come, where 5,000" in node.refusal(server.offer(data, size=5000)).message
    assert "bytes come, where" in node.refusal(server.offer(data, size=2 * len(data))).message


def test_a_server_that_knows_no_ranges(server: ArchiveServer, node: Taking) -> None:
    data = archive(MIB)
    server.faults = [serving(upto=1000), serving(ranges=False)]
    model = node.take(server.offer(data)).directory
    assert (model / "simple/1/weights").stat().st_size == MIB


def test_a_server_that_sends_another_range(server: ArchiveServer, node: Taking) -> None:
    def other(handler: Handler, asked: Asked) -> None:
        handler.serve(Asked(asked.path, "bytes=500-", ""))

    server.faults = [serving(upto=1000), other]
    data = archive(MIB)
    node.take(server.offer(data))
    assert [asked.range for asked in server.asked] == ["", "bytes=1000-", ""]


def test_a_server_that_answers_slowly(server: ArchiveServer, node: Taking) -> None:
    def slowly(handler: Handler, asked: Asked) -> None:
        data = handler.server.archives[asked.path]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        for byte in range(0, len(data), 2048):
            handler.wfile.write(data[byte : byte + 2048])
            handler.wfile.flush()
            time.sleep(0.01)  # sleeps: the server is slow

    server.faults = [slowly]
    node.take(server.offer(archive(30_000)))
    assert len(node.progress) > 5


def test_a_server_that_sends_in_chunks(server: ArchiveServer, node: Taking) -> None:
    def chunked(handler: Handler, asked: Asked) -> None:
        data = handler.server.archives[asked.path]
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(f"{len(data) + 2:x}\r\n".encode() + data + b"..\r\n0\r\n\r\n")
        handler.close_connection = True

    def whole(handler: Handler, asked: Asked) -> None:
        data = handler.server.archives[asked.path]
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n0\r\n\r\n")
        handler.close_connection = True

    server.faults = [chunked, whole]
    model = node.take(server.offer(archive(MIB))).directory
    assert (model / "simple/1/weights").stat().st_size == MIB
    assert len(server.asked) == 2
