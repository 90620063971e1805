"""Complete files reach their bucket once, also after it was away or the host was killed; meanwhile they are bounded."""

import asyncio
import logging
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from halimede.hosting.capture.conversion import ConversionError, Converted, convert
from halimede.hosting.capture.records import CaptureRecord, read_records
from halimede.hosting.capture.settings import CaptureSettings
from halimede.hosting.capture.spool import OPEN, RAW, RECORDS
from halimede.hosting.capture.uploader import Uploader
from halimede.hosting.errors import invalid
from halimede.hosting.identity import EndpointId
from halimede.hosting.routing.counts import InvocationCounts
from tests.hosting.capture.spools import ENDPOINT, NOON, Spool
from tests.hosting.control.fakes import on_loop
from tests.support.waiting import let_pass_async, wait_until_async

_AWAY = "Failed to write the object (bucket: bucket): there is no such bucket"
_FIELDS = ("capture_uploaded", "capture_dropped", "capture_upload_failures")


def _left(directory: Path) -> list[Path]:
    return list(directory.iterdir())


class Bucket:
    """A bucket that may be away, an uploader to it, and a clock that a test moves.

    Attributes:
        objects: URL → the records of the object.
        writes: how often each object was written.
        is_away: nothing can be written.
        tried: how often it was tried.
        counts: what was counted.
    """

    def __init__(self, directory: Path, settings: CaptureSettings | None = None) -> None:
        self.directory = directory
        self.settings = settings or CaptureSettings(sweep_s=3600)
        self.objects: dict[str, list[CaptureRecord]] = {}
        self.writes: Counter[str] = Counter()
        self.is_away = False
        self.tried = 0
        self.counts: Counter[str] = Counter()
        self.now = NOON
        self.converted: list[Path] = []
        self.uploader = self.another()

    def another(self) -> Uploader:
        """The uploader of the host's next process."""
        return Uploader(
            self.directory, self.settings, self.write, self.absorb, lambda: self.now, self._convert, cpus=64
        )

    async def write(self, account: str, url: str, path: Path) -> None:
        assert account == ENDPOINT.account
        self.tried += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise invalid(_AWAY)
        self.writes[url] += 1
        with path.open("rb") as file:
            self.objects[url] = list(read_records(file))

    def absorb(self, endpoint: EndpointId, variant: str, counts: InvocationCounts) -> None:
        assert (endpoint, variant) == (ENDPOINT, "v")
        self.counts.update({name: getattr(counts, name) for name in _FIELDS if getattr(counts, name)})

    def _convert(self, paths: Sequence[Path]) -> list[Converted]:
        self.converted += paths
        try:
            return [convert(path) for path in paths]
        except OSError as error:
            raise ConversionError(str(error)) from None

    async def sweep(self, after_s: float = 0) -> None:
        """Have a look at the directory, so many seconds later, and do what there is to do."""
        self.now += after_s
        await self.uploader.sweep()
        await self.uploader.idle()

    @property
    def bodies(self) -> list[bytes]:
        """The requests of all records that were uploaded, in order."""
        return [record.input.body for url in self.objects for record in self.objects[url] if record.input]


async def _spooled(directory: Path, files: int = 1, records: int = 2, *, uploading: bool = False) -> Spool:
    """Complete files with so many records each; while something uploads, they may be gone at once."""
    spool = Spool(directory, CaptureSettings(file_s=0))
    for file in range(files):
        for record in range(records):
            spool.invoke([b"%d-%d" % (file, record)])
        spool.now += 1
        await spool.writer.flush()
    await spool.writer.close()
    assert uploading or len(spool.files(RAW)) == files
    return spool


@on_loop
async def test_complete_files_are_uploaded_and_removed(tmp_path: Path) -> None:
    """To the key of their hour; each is an object."""
    await _spooled(tmp_path, files=20)
    bucket = Bucket(tmp_path)
    await bucket.sweep()
    assert bucket.bodies == [b"%d-%d" % (file, record) for file in range(20) for record in range(2)]
    assert all(url.startswith("s3://bucket/some/prefix/e/v/2027/01/15/12/00-") for url in bucket.objects)
    assert _left(tmp_path) == []
    assert bucket.counts == {"capture_uploaded": 40}
    await bucket.sweep()
    assert set(bucket.writes.values()) == {1}


@on_loop
async def test_a_file_that_is_uploaded_while_it_is_found_is_uploaded_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Looking and uploading go on side by side."""
    await _spooled(tmp_path, files=5)
    bucket = Bucket(tmp_path)
    for _ in range(200):
        await bucket.uploader.sweep()
        await asyncio.sleep(0)
        if not _left(tmp_path):
            break
    await bucket.uploader.idle()
    assert _left(tmp_path) == []
    assert set(bucket.writes.values()) == {1}
    assert caplog.text == ""


@on_loop
async def test_files_that_are_being_written_wait(tmp_path: Path) -> None:
    """They are this process's, or a router's."""
    spool = Spool(tmp_path)
    spool.invoke()
    await spool.writer.flush()
    bucket = Bucket(tmp_path)
    await bucket.sweep()
    assert bucket.objects == {}
    await spool.writer.close()
    await bucket.sweep()
    assert bucket.bodies == [b"asked"]


def _abandon(spool: Spool) -> None:
    """Make complete files what a process leaves that is killed: the last record of each is cut off."""
    for path in spool.files(RAW):
        data = path.read_bytes()
        path.unlink()
        path.with_suffix(OPEN).write_bytes(data[:-3])


@on_loop
async def test_what_a_killed_process_was_writing_is_uploaded_without_the_record_that_is_cut_off(
    tmp_path: Path,
) -> None:
    """That one is counted."""
    _abandon(await _spooled(tmp_path, files=2, records=3))
    bucket = Bucket(tmp_path)
    await bucket.sweep()
    assert bucket.bodies == [b"0-0", b"0-1", b"1-0", b"1-1"]
    assert bucket.counts == {"capture_uploaded": 4, "capture_dropped": 2}
    assert _left(tmp_path) == []


@on_loop
async def test_a_bucket_that_is_away_gets_everything_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried with more and more patience, and told once."""
    await _spooled(tmp_path, files=3)
    bucket = Bucket(tmp_path)
    bucket.is_away = True
    times = []
    with caplog.at_level(logging.INFO, "halimede"):
        for second in range(200):
            before = bucket.tried
            await bucket.sweep(1)
            if bucket.tried > before:
                times.append(second)
        assert times == [0, 1, 3, 7, 15, 31, 63, 123, 183]
        bucket.is_away = False
        await bucket.sweep(60)
    assert len(bucket.objects) == 3
    assert bucket.counts == {"capture_uploaded": 6, "capture_upload_failures": 9}
    assert len(bucket.converted) == 5  # the first one once, the others again
    assert [record.message for record in caplog.records] == [
        f"data capture of endpoint 'e': {_AWAY}; it is tried again, and up to 1024 MiB of records are kept",
        "data capture: records are written to s3://bucket again",
    ]


@on_loop
async def test_a_bucket_that_is_away_leaves_the_spool_bounded(tmp_path: Path) -> None:
    """What came first is kept, and capture goes on when that is uploaded."""
    limits = CaptureSettings(file_s=0, flush_bytes=1_000, spool_bytes=20_000)
    spool, bucket = Spool(tmp_path, limits), Bucket(tmp_path, limits)
    bucket.is_away = True
    for number in range(50):
        spool.invoke([b"%d" % number], [b"x" * 1000])
        spool.now += 1
        await spool.writer.flush()
        await bucket.sweep(1)
        assert sum(path.stat().st_size for path in _left(tmp_path)) <= 22_000  # with one file's records
    kept = spool.meter.records
    assert 10 < kept < 20
    assert spool.meter.dropped == 50 - kept
    full = [bucket.uploader.room.is_full]
    bucket.is_away = False
    await bucket.sweep(60)
    assert bucket.bodies == [b"%d" % number for number in range(kept)]
    await bucket.sweep(1)
    assert [*full, bucket.uploader.room.is_full] == [True, False]
    spool.now += 1
    spool.invoke([b"new"])
    await spool.writer.close()
    await bucket.sweep(1)
    assert bucket.bodies[-1] == b"new"


@on_loop
async def test_few_processors_are_left_to_others_most_of_the_time(tmp_path: Path) -> None:
    """Unless the host stops."""
    spool = await _spooled(tmp_path, files=40)
    bucket = Bucket(tmp_path)
    delays = [0.5]  # so much work is rested from for longer than the next is waited for

    def convert_slowly(paths: Sequence[Path]) -> list[Converted]:
        time.sleep(delays.pop() if delays else 0)  # sleeps: work, after which it rests as long
        return [convert(path) for path in paths]

    uploader = Uploader(
        tmp_path, bucket.settings, bucket.write, bucket.absorb, lambda: NOON, convert_slowly, cpus=2
    )
    await uploader.sweep()
    await wait_until_async(lambda: len(bucket.objects) == 16)
    await let_pass_async(0.2, "it rests: nothing tells of that")
    assert len(bucket.objects) == 16
    await uploader.stop(10)
    assert len(bucket.objects) == 40
    assert spool.files(RAW) == []


@on_loop
async def test_one_bucket_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    """Each has its own task."""
    spool = await _spooled(tmp_path)
    for path in spool.files(RAW):
        data = path.read_bytes().replace(b"s3://bucket/", b"s3://hanged/")
        path.with_name("20270115T115959000-x.raw").write_bytes(data)
    gate = asyncio.Event()
    written: list[str] = []

    async def write(_: str, url: str, __: Path) -> None:
        if url.startswith("s3://hanged"):
            await gate.wait()
        written.append(url.partition("/some")[0])

    def absorb(*_: object) -> None:
        """Count nothing."""

    uploader = Uploader(
        tmp_path, CaptureSettings(), write, absorb, convert=lambda paths: list(map(convert, paths)), cpus=64
    )
    await uploader.sweep()
    await wait_until_async(lambda: written == ["s3://bucket"])
    await _spooled(tmp_path / "more")
    for path in _left(tmp_path / "more"):
        shutil.move(path, tmp_path)
    while written != ["s3://bucket"] * 2:
        await uploader.sweep()
        await asyncio.sleep(0)
    gate.set()
    await uploader.idle()
    assert written == ["s3://bucket"] * 2 + ["s3://hanged"]


@pytest.mark.parametrize("killed_after", ["making records", "uploading"])
@on_loop
async def test_a_host_that_was_killed_while_it_uploaded_goes_on(tmp_path: Path, killed_after: str) -> None:
    """An object that is there already is written once more, with the same key and records: nothing is there twice."""
    spool = await _spooled(tmp_path, files=2)
    bucket = Bucket(tmp_path)
    kept = tmp_path.parent / f"{tmp_path.name}-kept"
    kept.mkdir()
    for path in spool.files(RAW):
        shutil.copy(path, kept)
        convert(path)
    if killed_after == "uploading":
        await bucket.sweep()
        for path in _left(kept):
            shutil.copy(path, tmp_path)
    (tmp_path / ".20270115T120000000-begun").write_bytes(b"hal0")
    bucket.uploader = bucket.another()
    await bucket.uploader.start()
    await wait_until_async(lambda: _left(tmp_path) == [])
    await bucket.uploader.stop(10)
    assert len(bucket.objects) == 2
    assert bucket.bodies == [b"0-0", b"0-1", b"1-0", b"1-1"]


@on_loop
async def test_stopping_uploads_what_is_complete(tmp_path: Path) -> None:
    """Without waiting for the next look at the directory."""
    bucket = Bucket(tmp_path)
    await bucket.uploader.start()
    await _spooled(tmp_path, uploading=True)
    await bucket.uploader.stop(10)
    assert bucket.bodies == [b"0-0", b"0-1"]


@on_loop
async def test_stopping_waits_for_a_bucket_that_hangs_no_longer_than_it_may(tmp_path: Path) -> None:
    """What is not uploaded stays."""
    spool = await _spooled(tmp_path)

    async def write(*_: object) -> None:
        await asyncio.Event().wait()

    def absorb(*_: object) -> None:
        """Count nothing."""

    uploader = Uploader(
        tmp_path, CaptureSettings(), write, absorb, convert=lambda paths: list(map(convert, paths)), cpus=64
    )
    await uploader.start()
    await uploader.stop(0.05)
    assert len(spool.files(RAW)) == 1


@on_loop
async def test_it_is_looked_at_again_and_again(tmp_path: Path) -> None:
    """Whichever process has completed a file."""
    bucket = Bucket(tmp_path, CaptureSettings(sweep_s=0.01))
    await bucket.uploader.start()
    for count in (1, 2):
        await _spooled(tmp_path, uploading=True)
        await wait_until_async(partial(_has, bucket, count))
    await bucket.uploader.stop(10)


def _has(bucket: Bucket, count: int) -> bool:
    return len(bucket.objects) == count


@on_loop
async def test_files_that_are_nothing_are_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As of a disk that has lost them; the others are uploaded."""
    await _spooled(tmp_path)
    (tmp_path / "20270115T110000000-x.raw").write_bytes(bytes(100))
    (tmp_path / "20270115T110001000-x.open").write_bytes(b"")
    bucket = Bucket(tmp_path)
    await bucket.sweep()
    assert bucket.bodies == [b"0-0", b"0-1"]
    assert _left(tmp_path) == []
    assert "is removed: it is cut off or damaged at byte 0" in caplog.text


@on_loop
async def test_records_that_cannot_be_made_are_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when the process that makes them is killed."""
    spool = await _spooled(tmp_path)
    bucket = Bucket(tmp_path)
    fails = [True]

    def convert_sometimes(paths: Sequence[Path]) -> list[Converted]:
        if fails.pop():
            fails.append(False)
            raise ConversionError("status -9")
        fails.append(False)
        return [convert(path) for path in paths]

    bucket.uploader._convert = convert_sometimes  # noqa: SLF001 - the process that fails
    await bucket.sweep()
    assert len(spool.files(RAW)) == 1
    assert spool.files(RECORDS) == []
    await bucket.sweep(1)
    assert bucket.bodies == [b"0-0", b"0-1"]
    assert "records cannot be made: status -9" in caplog.text
