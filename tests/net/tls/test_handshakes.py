import asyncio
import logging
import ssl
import subprocess
from pathlib import Path

import pytest

from halimede.net.tls.certificates import TlsFiles
from halimede.net.tls.connection import TlsConnection
from halimede.net.tls.identity import Identity
from tests.net.tls.serving import EchoServer, asked, client, run
from tests.support.certificates import Authority
from tests.support.waiting import wait_until_async


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server_files(authority: Authority) -> tuple[Path, Path]:
    return authority.issue("server")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "halimede")
    return caplog


def failure_of(
    identity: Identity, context: ssl.SSLContext | None, log: pytest.LogCaptureFixture, says: bytes = b""
) -> str:
    """What the log says of a client that is not served, and does not get an answer either."""

    async def scenario() -> None:
        async with EchoServer(identity) as server:
            try:
                reader, writer = await server.connect(context)
                writer.write(says or b"hello")
                assert b"hello" not in await reader.read()
                writer.close()
            except OSError:
                pass
            await wait_until_async(lambda: log.records, "a record of the log")

    run(scenario())
    [record] = log.records
    front, reason = record.getMessage().split(" failed: ")
    assert front.startswith("EchoService: the TLS handshake of 127.0.0.1:")
    return reason


def test_clients_are_served(authority: Authority, server_files: tuple[Path, Path]) -> None:
    async def scenario() -> None:
        async with EchoServer(Identity(TlsFiles(*server_files), "h2", required=True)) as server:
            reader, writer = await server.connect(client(authority.certificate))
            assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
            assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
            assert await asked(reader, writer)
            writer.close()

    run(scenario())


def test_a_client_that_does_not_agree_to_the_protocol_is_closed(
    authority: Authority, server_files: tuple[Path, Path], log: pytest.LogCaptureFixture
) -> None:
    identity = Identity(TlsFiles(*server_files), "h2", required=True)
    other = client(authority.certificate, protocols=("http/1.1",))
    assert failure_of(identity, other, log) == "the client does not offer 'h2' by ALPN"
    log.clear()
    silent = client(authority.certificate, protocols=())
    assert failure_of(identity, silent, log) == "the client does not offer 'h2' by ALPN"


def test_a_protocol_that_is_not_required_may_be_left_open(
    authority: Authority, server_files: tuple[Path, Path]
) -> None:
    async def scenario() -> None:
        async with EchoServer(Identity(TlsFiles(*server_files), "http/1.1")) as server:
            assert await server.is_served(client(authority.certificate, protocols=()))

    run(scenario())


def test_only_clients_whose_certificate_is_vouched_for_are_served(
    authority: Authority,
    server_files: tuple[Path, Path],
    tmp_path: Path,
    log: pytest.LogCaptureFixture,
) -> None:
    identity = Identity(TlsFiles(*server_files, authority.certificate), "h2")
    root = authority.certificate

    async def scenario() -> None:
        async with EchoServer(identity) as server:
            assert await server.is_served(client(root, authority.issue("client")))

    run(scenario())
    assert failure_of(identity, client(root), log) == "the client has shown no certificate"
    log.clear()
    expired = client(root, authority.issue("expired", days=-1))
    assert (
        failure_of(identity, expired, log) == "the client's certificate is refused: certificate has expired"
    )
    log.clear()
    stranger = client(root, Authority(tmp_path).issue("stranger"))
    assert failure_of(identity, stranger, log).startswith(
        "the client's certificate is refused: unable to get"
    )


def test_a_client_learns_why_its_certificate_is_refused(
    authority: Authority, server_files: tuple[Path, Path]
) -> None:
    context = client(authority.certificate, authority.issue("expired", days=-1))

    async def scenario() -> None:
        async with EchoServer(Identity(TlsFiles(*server_files, authority.certificate), "h2")) as server:
            with pytest.raises(ssl.SSLError, match="CERTIFICATE_EXPIRED"):
                await asked(*await server.connect(context))

    run(scenario())


def test_a_client_that_refuses_the_servers_certificate_is_told_of(
    server_files: tuple[Path, Path], tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    stranger = Authority(tmp_path)

    async def scenario() -> None:
        async with EchoServer(Identity(TlsFiles(*server_files), "h2")) as server:
            process = await asyncio.create_subprocess_exec(
                "openssl", "s_client", "-verify_return_error", "-connect", f"127.0.0.1:{server.port}",
                "-CAfile", str(stranger.certificate),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            await process.wait()
            await wait_until_async(lambda: log.records, "a record of the log")

    run(scenario())
    assert (
        log.records[0]
        .getMessage()
        .endswith(" failed: the client refuses it, perhaps for the server's certificate: unknown ca")
    )


def test_a_client_without_tls_is_told_of(
    server_files: tuple[Path, Path], log: pytest.LogCaptureFixture
) -> None:
    identity = Identity(TlsFiles(*server_files), "h2")
    assert (
        failure_of(identity, None, log, says=b"GET / HTTP/1.1\r\n\r\n")
        == "the client speaks HTTP without TLS"
    )


def test_old_versions_of_tls_are_refused(
    authority: Authority, server_files: tuple[Path, Path], log: pytest.LogCaptureFixture
) -> None:
    context = client(authority.certificate)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    assert failure_of(Identity(TlsFiles(*server_files), "h2"), context, log) == (
        "the client offers neither TLS 1.2 nor 1.3"
    )


def test_a_client_may_not_negotiate_again(authority: Authority, server_files: tuple[Path, Path]) -> None:
    async def scenario() -> None:
        async with EchoServer(Identity(TlsFiles(*server_files), "h2")) as server:
            process = await asyncio.create_subprocess_exec(
                "openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{server.port}",
                "-CAfile", str(authority.certificate),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            await wait_until_async(lambda: server.connections, "the connection")
            process.stdin.write(b"R\n")
            output = await process.stdout.read()
            await process.wait()
            assert b"RENEGOTIATING" in output
            assert b"no renegotiation" in output

    run(scenario())


def test_a_client_may_have_keys_changed(authority: Authority, server_files: tuple[Path, Path]) -> None:
    async def scenario() -> None:
        async with EchoServer(Identity(TlsFiles(*server_files), "h2")) as server:
            process = await asyncio.create_subprocess_exec(
                "openssl", "s_client", "-tls1_3", "-connect", f"127.0.0.1:{server.port}",
                "-CAfile", str(authority.certificate),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            await wait_until_async(lambda: server.connections, "the connection")
            process.stdin.write(b"K\n")
            await process.stdout.readuntil(b"KEYUPDATE\n")
            process.stdin.write(b"hello\n")
            await process.stdout.readuntil(b"hello\n")
            process.stdin.write(b"Q\n")
            await process.communicate()

    run(scenario())


def test_a_handshake_that_takes_too_long_is_broken_off(
    server_files: tuple[Path, Path], log: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with EchoServer(Identity(TlsFiles(*server_files), "h2"), timeout_s=0.05) as server:
            reader, writer = await server.connect()
            writer.write(b"\x16\x03\x01\x02\x00")  # the beginning of a hello
            assert await reader.read() == b""
            writer.close()

    run(scenario())
    [record] = log.records
    assert record.getMessage().endswith(" failed: it took longer than 0.05 seconds")


def test_the_oldest_of_too_many_unfinished_handshakes_is_broken_off(
    authority: Authority, server_files: tuple[Path, Path], log: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with EchoServer(Identity(TlsFiles(*server_files), "h2"), at_once=2) as server:
            silent = [await server.connect() for _ in range(2)]
            assert await server.is_served(client(authority.certificate))
            assert await silent[0][0].read() == b""
            for _, writer in silent:
                writer.close()

    run(scenario())
    [record] = log.records
    assert record.getMessage().endswith(" failed: 2 others are unfinished too, and more clients come")


def test_closing_breaks_unfinished_handshakes_off(server_files: tuple[Path, Path]) -> None:
    async def scenario() -> None:
        async with EchoServer(Identity(TlsFiles(*server_files), "h2")) as server:
            reader, writer = await server.connect()
            await wait_until_async(lambda: server.handshakes.under_way, "the handshake to begin")
            server.handshakes.close()
            assert await reader.read() == b""
            writer.close()

    run(scenario())


def test_many_handshakes_at_once_do_not_hold_up_a_connection(
    authority: Authority, server_files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []

    async def scenario() -> None:
        async with EchoServer(Identity(TlsFiles(*server_files), "h2")) as server:
            turn = 0

            def next_turn() -> None:
                nonlocal turn
                turn += 1
                loop.call_soon(next_turn)

            def shake_hands(connection: TlsConnection) -> None:
                turns.append(turn)
                shake(connection)

            loop, shake = asyncio.get_running_loop(), TlsConnection.shake_hands
            monkeypatch.setattr(TlsConnection, "shake_hands", shake_hands)
            next_turn()
            context = client(authority.certificate)
            served = await asyncio.gather(*(server.is_served(context) for _ in range(20)))
            assert all(served)

    run(scenario())
    assert len(turns) >= 40  # a hello and an end of each
    assert len(set(turns)) == len(turns)


def test_many_failures_do_not_fill_the_log(
    server_files: tuple[Path, Path], log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0

    async def scenario() -> None:
        nonlocal now
        async with EchoServer(Identity(TlsFiles(*server_files), "h2")) as server:
            monkeypatch.setattr(server.handshakes, "_time", lambda: now)
            for _ in range(5):
                reader, writer = await server.connect()
                writer.write(b"nonsense that is long enough")
                await reader.read()
                writer.close()
            assert len(log.records) == 1
            now += 1.5
            reader, writer = await server.connect()
            writer.write(b"nonsense that is long enough")
            await reader.read()
            writer.close()

    run(scenario())
    assert (
        log.records[-1]
        .getMessage()
        .endswith("the client speaks something else than TLS (4 more failures were not logged)")
    )


def test_a_client_that_just_leaves_is_not_worth_a_line(
    authority: Authority, server_files: tuple[Path, Path], log: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with EchoServer(Identity(TlsFiles(*server_files), "h2")) as server:
            _, writer = await server.connect()
            writer.close()
            assert await server.is_served(client(authority.certificate))
            await wait_until_async(lambda: not server.handshakes.under_way, "the handshakes to end")

    run(scenario())
    assert not log.records
