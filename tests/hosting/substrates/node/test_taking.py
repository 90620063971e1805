"""Models on the disk of a node, taken by one process."""

import pickle
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.store import extraction
from halimede.repository.model_archives import extract_model
from tests.hosting.substrates.node.serving import CONFIG, MIB, ArchiveServer, Asked, Handler, archive
from tests.hosting.substrates.node.taking import Taking
from tests.support.stopping import stop

Process = subprocess.Popen[bytes]


def test_a_model_is_fetched_and_extracted_once(server: ArchiveServer, node: Taking) -> None:
    offer = server.offer(archive(3 * MIB))
    first = node.take(offer)
    second = node.take(offer)
    assert first.directory == second.directory
    assert (first.directory / "simple/config.pbtxt").read_bytes() == CONFIG
    assert (first.directory / "simple/1/weights").stat().st_size == 3 * MIB
    assert 3 * MIB <= first.disk_bytes < 4 * MIB
    assert second.disk_bytes == first.disk_bytes == node.store.used_bytes()
    assert [asked.match for asked in server.asked] == ['"v1"']
    assert node.progress[0][0] < offer.size
    assert node.progress[-1] == (offer.size, offer.size)
    assert [name.partition("-")[0] for name in node.names()] == ["model"]
    for held in (first, first, second):
        held.release()
    assert node.take(offer).directory.is_dir()
    assert len(server.asked) == 1


def test_another_version_of_an_archive_is_another_model(server: ArchiveServer, node: Taking) -> None:
    first = node.take(server.offer(archive(1000)))
    server.etag = "v2"
    second = node.take(server.offer(archive(2000)))
    sizes = [(held.directory / "simple/1/weights").stat().st_size for held in (first, second)]
    assert sizes == [1000, 2000]


def test_what_is_no_archive_is_refused_as_on_the_host(server: ArchiveServer, node: Taking) -> None:
    for data in (b"", b"no archive at all", archive(1000)[:1024]):
        error = node.refusal(server.offer(data))
        assert error.code == "ValidationException"
        assert "'s3://models/model.tar.gz'" in error.message
        assert "tar -czf model.tar.gz" in error.message
        assert str(node.directory) not in error.message
        assert node.refusal(server.offer(data)).message == error.message
    assert len(server.asked) == 2  # of each that is not empty
    assert not any(name.startswith("model") for name in node.names())


def test_an_archive_that_was_refused_is_tried_again_after_a_minute(
    server: ArchiveServer, tmp_path: Path
) -> None:
    clock = [1e9]
    node = Taking(tmp_path / "node", now=lambda: clock[0])
    offer = server.offer(b"no archive")
    for later in (0.0, 59.0, 1.0):
        clock[0] += later
        assert "cannot be extracted" in node.refusal(offer).message
    assert len(server.asked) == 2


def test_an_archive_that_leads_out_of_its_directory_is_refused(
    server: ArchiveServer, node: Taking, tmp_path: Path
) -> None:
    data = archive(10).replace(b"simple/1/weights", b"../../../../out\0")
    error = node.refusal(server.offer(data))
    assert error.code == "ValidationException"
    assert not list(tmp_path.rglob("out"))


def test_a_model_of_which_a_part_was_removed_is_fetched_again(server: ArchiveServer, node: Taking) -> None:
    offer = server.offer(archive(1000))
    for part in ("about.json", "stamp"):
        held = node.take(offer)
        held.release()
        (held.directory.parent / part).unlink()
    assert (node.take(offer).directory / "simple/config.pbtxt").read_bytes() == CONFIG
    assert len(server.asked) == 3


def test_a_fetch_that_is_stopped_ends_at_once(server: ArchiveServer, node: Taking) -> None:
    server.gate.clear()
    threading.Timer(0.2, node.stop.set).start()
    error = node.refusal(server.offer(archive(MIB)))
    assert (error.code, error.status) == ("OperationAborted", 409)
    assert "s3://models/model.tar.gz" in error.message


def test_a_fetch_that_takes_too_long_says_how_far_it_came(server: ArchiveServer, node: Taking) -> None:
    data = archive(MIB)

    def stall(handler: Handler, asked: Asked) -> None:
        handler.serve(asked, upto=MIB // 2)
        node.stop.wait(5)

    server.faults = [stall]
    error = node.refusal(server.offer(data), 1.0)
    assert error.code == "ValidationException"
    assert "it took longer than 1 seconds" in error.message
    assert f"{MIB // 2:,} of {len(data):,} bytes had been downloaded" in error.message
    assert "ModelDataDownloadTimeoutInSeconds" in error.message
    node.stop.set()
    node.stop = threading.Event()
    node.take(server.offer(data))
    assert [asked.range for asked in server.asked] == ["", f"bytes={MIB // 2}-"]


def test_an_extraction_that_takes_too_long_is_stopped(
    server: ArchiveServer, node: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:

    def never_ending(path: Path, directory: Path, on_started: Callable[[Process], None]) -> None:
        def started(process: Process) -> None:
            stop(process.pid)
            on_started(process)

        extract_model(path, directory, on_started=started)

    offer = server.offer(archive(1000))
    with monkeypatch.context() as patch:
        patch.setattr(extraction, "extract_model", never_ending)
        assert "it took longer than 1 seconds" in node.refusal(offer, 1.0).message
    node.take(offer)
    assert len(server.asked) == 1  # the archive was there


def test_errors_travel_between_processes(server: ArchiveServer, node: Taking) -> None:
    error = node.refusal(server.offer(b"nothing"))
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, ApiError)
    assert (copy.code, copy.message, copy.status) == (error.code, error.message, error.status)
    assert str(copy) == str(error)
