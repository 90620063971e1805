import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from halimede.net.tls.certificates import CertificateError, TlsFiles
from halimede.net.tls.identity import Identity
from tests.net.tls.serving import EchoServer, asked, client, run
from tests.support.certificates import Authority, make_certificate
from tests.support.waiting import wait_until_async

INTERVAL_S = 0.01


@pytest.fixture
def old(tmp_path: Path) -> Authority:
    (tmp_path / "old").mkdir()
    return Authority(tmp_path / "old")


@pytest.fixture
def new(tmp_path: Path) -> Authority:
    (tmp_path / "new").mkdir()
    return Authority(tmp_path / "new")


def kubernetes_secret(directory: Path, version: str, files: tuple[Path, Path]) -> tuple[Path, Path]:
    """The files as Kubernetes mounts a secret: links through ..data to a directory, which an update replaces."""
    mounted = directory / f"..{version}"
    mounted.mkdir()
    for file, name in zip(files, ("tls.crt", "tls.key"), strict=True):
        shutil.copy(file, mounted / name)
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(Path("..data") / name)
    (directory / "..data_tmp").symlink_to(mounted.name)
    (directory / "..data_tmp").replace(directory / "..data")
    return directory / "tls.crt", directory / "tls.key"


def in_place(target: Path, source: Path) -> None:
    target.write_bytes(source.read_bytes())


def by_rename(target: Path, source: Path) -> None:
    beside = target.with_suffix(".tmp")
    shutil.copy(source, beside)
    beside.replace(target)


@pytest.mark.parametrize("replace", [in_place, by_rename])
def test_changed_files_are_used_for_new_connections_while_others_go_on(
    replace: Callable[[Path, Path], None],
    old: Authority,
    new: Authority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "halimede")
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    for target, source in zip((certificate, key), old.issue("server"), strict=True):
        shutil.copy(source, target)
    identity = Identity(TlsFiles(certificate, key), "h2", interval_s=INTERVAL_S)

    async def scenario() -> None:
        async with EchoServer(identity) as server:
            identity.start()
            reader, writer = await server.connect(client(old.certificate))
            assert await asked(reader, writer)
            before = identity.context
            for target, source in zip((certificate, key), new.issue("server"), strict=True):
                replace(target, source)
            await wait_until_async(lambda: identity.context is not before, "the files to be read")
            assert await server.is_served(client(new.certificate))
            assert not await server.is_served(client(old.certificate))
            assert await asked(reader, writer)
            writer.close()
        identity.close()

    run(scenario())
    assert f"TLS: new connections use the changed files '{certificate}', '{key}'" in caplog.text


def test_a_secret_that_kubernetes_updates_is_read_again(
    old: Authority, new: Authority, tmp_path: Path
) -> None:
    mount = tmp_path / "secret"
    mount.mkdir()
    files = kubernetes_secret(mount, "first", old.issue("server"))
    identity = Identity(TlsFiles(*files), "h2", interval_s=INTERVAL_S)

    async def scenario() -> None:
        async with EchoServer(identity) as server:
            identity.start()
            assert await server.is_served(client(old.certificate))
            before = identity.context
            kubernetes_secret(mount, "second", new.issue("server"))
            await wait_until_async(lambda: identity.context is not before, "the files to be read")
            assert await server.is_served(client(new.certificate))
        identity.close()

    run(scenario())


def test_changed_roots_let_other_clients_in(old: Authority, new: Authority, tmp_path: Path) -> None:
    roots = tmp_path / "roots.pem"
    shutil.copy(old.certificate, roots)
    identity = Identity(TlsFiles(*old.issue("server"), roots), "h2", interval_s=INTERVAL_S)
    theirs = {authority: client(old.certificate, authority.issue("client")) for authority in (old, new)}

    async def scenario() -> None:
        async with EchoServer(identity) as server:
            identity.start()
            assert await server.is_served(theirs[old])
            assert not await server.is_served(theirs[new])
            before = identity.context
            by_rename(roots, new.certificate)
            await wait_until_async(lambda: identity.context is not before, "the files to be read")
            assert await server.is_served(theirs[new])
            assert not await server.is_served(theirs[old])  # nor by a session that it might resume
        identity.close()

    run(scenario())


def test_changed_files_that_cannot_be_used_are_told_once_and_change_nothing(
    old: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = old.issue("server")
    identity = Identity(TlsFiles(certificate, key), "h2", interval_s=INTERVAL_S)

    async def scenario() -> None:
        async with EchoServer(identity) as server:
            identity.start()
            before = identity.context
            key.write_text("damaged")
            await wait_until_async(lambda: caplog.records, "a record of the log")
            assert identity.context is before
            assert await server.is_served(client(old.certificate))
            certificate.unlink()
            await wait_until_async(lambda: len(caplog.records) > 1, "a record of the log")
            assert await server.is_served(client(old.certificate))
        identity.close()

    run(scenario())
    front = "TLS: changed files are not used, those read before still are: "
    assert [record.getMessage() for record in caplog.records] == [
        f"{front}'{key}' holds no private key in PEM",
        f"{front}cannot read '{certificate}': No such file or directory",
    ]


def test_a_certificate_whose_key_follows_later_is_used_once_the_key_is_there(
    old: Authority, new: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = old.issue("server")
    new_certificate, new_key = new.issue("server")
    identity = Identity(TlsFiles(certificate, key), "h2", interval_s=INTERVAL_S)

    async def scenario() -> None:
        async with EchoServer(identity) as server:
            identity.start()
            before = identity.context
            by_rename(certificate, new_certificate)
            await wait_until_async(lambda: caplog.records, "a record of the log")
            assert await server.is_served(client(old.certificate))
            by_rename(key, new_key)
            await wait_until_async(lambda: identity.context is not before, "the files to be read")
            assert await server.is_served(client(new.certificate))
        identity.close()

    run(scenario())
    [record] = caplog.records
    assert record.getMessage() == (
        "TLS: changed files are not used, those read before still are: "
        f"the key '{key}' does not belong to the certificate '{certificate}'"
    )


def test_a_certificate_that_is_still_being_written_is_not_used(
    old: Authority, new: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = old.issue("server")
    new_certificate, new_key = new.issue("server")
    identity = Identity(TlsFiles(certificate, key), "h2", interval_s=INTERVAL_S)
    whole = new_certificate.read_bytes() + new.certificate.read_bytes()

    async def scenario() -> None:
        async with EchoServer(identity) as server:
            identity.start()
            before = identity.context
            by_rename(key, new_key)
            for end in (0, len(whole) // 4, len(whole) * 3 // 4):  # the last in the middle of the root
                certificate.write_bytes(whole[:end])
                await wait_until_async(lambda: caplog.records, "a record of the log")
                caplog.clear()
                assert identity.context is before
                assert await server.is_served(client(old.certificate))
            certificate.write_bytes(whole)
            await wait_until_async(lambda: identity.context is not before, "the files to be read")
            assert await server.is_served(client(new.certificate))
        identity.close()

    run(scenario())


def test_an_expired_certificate_is_used_with_a_warning(
    old: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = old.issue("expired", days=-1)
    Identity(TlsFiles(certificate, key), "h2")
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(f"TLS: the certificate '{certificate}' expired at ")


def test_an_expired_certificate_is_warned_of_again(old: Authority, caplog: pytest.LogCaptureFixture) -> None:
    identity = Identity(TlsFiles(*old.issue("expired", days=-1)), "h2", reminder_s=INTERVAL_S)

    async def scenario() -> None:
        identity.start()
        await wait_until_async(lambda: len(caplog.records) > 2, "a record of the log")
        identity.close()

    run(scenario())
    assert len({record.getMessage() for record in caplog.records}) == 1


def test_files_that_cannot_be_used_at_start_are_refused(tmp_path: Path) -> None:
    certificate, _ = make_certificate(tmp_path, "server")
    _, key = make_certificate(tmp_path, "other")
    with pytest.raises(CertificateError, match="does not belong to the certificate"):
        Identity(TlsFiles(certificate, key), "h2")
