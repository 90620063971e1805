import asyncio
import socket
import ssl
import subprocess
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.net.tls.connection import TlsConnection
from tests.net.tls.ends import Buffered, Ends, Received
from tests.support.certificates import make_certificate


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("certificates"), "server")


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def connected(files: tuple[Path, Path], received: Received | None = None) -> Ends:
    ends = Ends(files, received)
    ends.shake_hands()
    assert ends.received.events == ["made"]
    return ends


@contextmanager
def openssl_client() -> Iterator[tuple[socket.socket, IO[bytes]]]:
    """A connection of `openssl s_client`, whose TLS is not served yet, and its keyboard."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = ["openssl", "s_client", "-tls1_3", "-connect", f"127.0.0.1:{listener.getsockname()[1]}"]
        with subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as client:
            assert client.stdin is not None
            listener.settimeout(60)
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(60)
                yield connection, client.stdin
            client.kill()


def test_both_sides_send(files: tuple[Path, Path]) -> None:
    async def scenario() -> None:
        ends = connected(files)
        ends.client.write(b"hello")
        ends.to_server()
        assert ends.received.data == b"hello"
        ends.server.write(b"hello yourself")
        assert ends.read() == b"hello yourself"
        assert ends.server.get_extra_info("ssl_object").version() == "TLSv1.3"

    run(scenario())


@pytest.mark.parametrize("buffer", [0, 100, 16_384, 100_000])
@settings(max_examples=50)
@given(sizes=st.lists(st.integers(1, 70_000), min_size=1, max_size=5), piece=st.integers(1, 40_000))
def test_what_is_received_is_what_was_sent(
    files: tuple[Path, Path], buffer: int, sizes: list[int], piece: int
) -> None:
    async def scenario() -> None:
        ends = connected(files, Buffered(buffer) if buffer else Received())
        sent = b""
        for number, size in enumerate(sizes):
            data = bytes([number]) * size
            ends.client.write(data)
            sent += data
        ends.to_server(max(piece, sum(sizes) // 1000))
        assert ends.received.data == sent

    run(scenario())


@given(st.lists(st.lists(st.integers(0, 300_000), max_size=4), max_size=4))
def test_what_is_written_arrives_whole_and_in_order(
    files: tuple[Path, Path], writes: list[list[int]]
) -> None:
    async def scenario() -> None:
        ends = connected(files)
        parts = [[bytes([number]) * size for number, size in enumerate(sizes)] for sizes in writes]
        for number, buffers in enumerate(parts):
            if number % 2:
                ends.server.writelines(memoryview(buffer) for buffer in buffers)
            else:
                for buffer in buffers:
                    ends.server.write(buffer)
        ends.server.close()
        assert ends.read() == b"".join(b"".join(buffers) for buffers in parts)
        assert ends.tcp.closed

    run(scenario())


@given(st.binary(min_size=1, max_size=300), st.integers(1, 100))
def test_bytes_that_are_no_handshake_end_the_connection_or_are_waited_for(
    files: tuple[Path, Path], data: bytes, piece: int
) -> None:
    async def scenario() -> None:
        ends = Ends(files)
        for start in range(0, len(data), piece):
            ends.server.data_received(data[start : start + piece])
        assert ends.tcp.closed is bool(ends.errors)
        assert not ends.received.events

    run(scenario())


@given(st.data())
def test_damaged_records_end_the_connection(files: tuple[Path, Path], data: st.DataObject) -> None:
    async def scenario() -> None:
        ends = connected(files)
        ends.client.write(b"0123456789")
        record = bytearray(ends.sent())
        place = data.draw(st.integers(0, len(record) - 1))
        record[place] ^= data.draw(st.integers(1, 255))
        ends.server.data_received(bytes(record) + bytes(1 << 15))
        assert ends.tcp.closed
        assert ends.received.data == b""

    run(scenario())


def test_a_client_that_does_not_read_pauses_the_protocol(files: tuple[Path, Path]) -> None:
    async def scenario() -> None:
        ends = connected(files)
        ends.server.set_write_buffer_limits(high=1000)
        ends.server.write(b"a" * 2000)
        ends.server.write(b"b" * 5000)
        assert ends.received.events == ["made", "pause"]
        assert ends.server.get_write_buffer_size() >= 7000
        assert len(ends.tcp.sent) < 3000  # what waits is not encrypted yet
        assert ends.read() == b"a" * 2000 + b"b" * 5000
        assert ends.received.events == ["made", "pause", "resume"]
        assert ends.server.get_write_buffer_size() == 0

    run(scenario())


def test_a_client_that_has_keys_changed_again_and_again_and_reads_nothing_is_broken_off(
    files: tuple[Path, Path],
) -> None:
    async def scenario() -> None:
        ends = Ends(files)
        with openssl_client() as (connection, keyboard):
            while not ends.received.events:
                ends.server.data_received(connection.recv(1 << 16))
                connection.sendall(ends.tcp.take())
            ends.server.set_write_buffer_limits(high=1000)
            ends.server.write(b"a" * 2000)
            unread = len(ends.tcp.sent)
            for _ in range(1000):
                keyboard.write(b"K\n")  # change the keys, and ask the server to do so
                ends.server.data_received(connection.recv(1 << 16))
                if ends.tcp.aborted:
                    break
                assert len(ends.tcp.sent) < unread + 20_000
            assert ends.tcp.aborted
            assert len(ends.tcp.sent) > unread + 10_000

    run(scenario())


def test_a_protocol_that_does_not_read_is_handed_nothing(files: tuple[Path, Path]) -> None:
    async def scenario() -> None:
        ends = connected(files)
        ends.server.pause_reading()
        assert not ends.tcp.is_reading()
        ends.client.write(b"hello")
        ends.to_server()
        assert ends.received.data == b""
        ends.server.resume_reading()
        assert ends.tcp.is_reading()
        await asyncio.sleep(0)
        assert ends.received.data == b"hello"

    run(scenario())


def test_a_client_that_has_ended_its_side_still_gets_the_answer(files: tuple[Path, Path]) -> None:
    async def scenario() -> None:
        ends = connected(files)
        ends.received.wants_to_answer = True
        ends.client.write(b"question")
        with pytest.raises(ssl.SSLWantReadError):
            ends.client.unwrap()
        ends.to_server()
        assert ends.received.data == b"question"
        assert ends.received.events == ["made", "eof"]
        assert ends.server.eof_received()
        ends.server.write(b"answer")
        ends.server.close()
        assert ends.read() == b"answer"
        assert ends.tcp.closed

    run(scenario())


def test_a_client_that_leaves_without_a_word_is_gone(files: tuple[Path, Path]) -> None:
    async def scenario() -> None:
        ends = connected(files)
        assert not ends.server.eof_received()
        assert ends.tcp.closed
        ends.server.connection_lost(None)
        assert ends.received.events == ["made", "eof", "lost"]
        ends.server.write(b"too late")

    run(scenario())


def test_what_comes_after_the_last_word_is_thrown_away(files: tuple[Path, Path]) -> None:
    async def scenario() -> None:
        ends = connected(files)
        ends.server.write(b"refused")
        ends.server.write_eof()
        assert ends.tcp.ended
        assert not ends.tcp.closed
        ends.client.write(b"more" * 1000)
        ends.to_server()
        assert ends.received.data == b""
        assert ends.read() == b"refused"
        ends.server.close()
        assert ends.tcp.closed

    run(scenario())


def test_closing_waits_for_what_the_client_has_not_taken(files: tuple[Path, Path]) -> None:
    async def scenario() -> None:
        ends = connected(files)
        ends.server.writelines([b"a" * 300_000, b"b" * 300_000])
        ends.server.close()
        assert ends.server.is_closing()
        assert not ends.tcp.closed
        assert len(ends.read()) == 600_000
        assert ends.tcp.closed

    run(scenario())


def test_a_connection_that_is_broken_off_sends_nothing_more(files: tuple[Path, Path]) -> None:
    async def scenario() -> None:
        ends = connected(files)
        ends.server.abort()
        assert ends.tcp.aborted
        ends.tcp.sent.clear()
        ends.server.write(b"too late")
        assert not ends.tcp.sent

    run(scenario())


def test_a_protocol_that_has_closed_is_handed_nothing_more(files: tuple[Path, Path]) -> None:
    class Once(Received):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.close()

    async def scenario() -> None:
        ends = connected(files, Once())
        ends.client.write(b"first")
        ends.to_server()
        ends.client.write(b"second")
        ends.to_server()
        assert not ends.server.eof_received()
        assert ends.received.data == b"first"
        assert ends.received.events == ["made"]

    run(scenario())


def test_a_client_whose_handshake_waits_for_its_turn_is_not_read(files: tuple[Path, Path]) -> None:
    class Late(Ends):
        def ready(self, connection: TlsConnection) -> None:
            assert not self.tcp.is_reading()

    async def scenario() -> None:
        ends = Late(files)
        with pytest.raises(ssl.SSLWantReadError):
            ends.client.do_handshake()
        ends.to_server()
        ends.server.shake_hands()
        assert ends.tcp.is_reading()

    run(scenario())


def test_another_protocol_takes_over(files: tuple[Path, Path]) -> None:
    async def scenario() -> None:
        ends = connected(files)
        body = Buffered(10)
        ends.server.set_protocol(body)
        ends.client.write(b"0123456789abcdef")
        ends.to_server()
        assert body.data == b"0123456789abcdef"

    run(scenario())


def test_a_client_that_is_not_wanted_is_told_after_the_handshake(files: tuple[Path, Path]) -> None:
    async def scenario() -> None:
        ends = Ends(files)
        ends.refuses = True
        ends.shake_hands()
        assert ends.read() == b""
        assert ends.tcp.closed
        assert not ends.received.events

    run(scenario())
