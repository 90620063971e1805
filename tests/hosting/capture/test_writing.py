"""Invocations become spool files: what is captured, what is left out, and that both are bounded."""

import os
import shutil
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from halimede.hosting.capture.conversion import Converted, convert, convert_apart
from halimede.hosting.capture.records import CaptureRecord, read_records
from halimede.hosting.capture.settings import CaptureSettings
from halimede.hosting.capture.spool import (
    OPEN,
    RAW,
    CapturePlace,
    SpoolFile,
    complete_abandoned,
    frame,
    read_frames,
    read_place,
)
from halimede.hosting.specs import DataCapture
from tests.hosting.capture.spools import CAPTURE, NOON, Spool
from tests.hosting.control.fakes import on_loop
from tests.support.waiting import wait_until_async

_BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size=12"
_KNOWN_TYPES = DataCapture(
    "s3://bucket", 100, csv_types=("text/csv",), json_types=("application/json", "application/x")
)


def _count(path: Path) -> int:
    return len(list(read_frames(path)))


def _records(converted: Converted) -> list[CaptureRecord]:
    with converted.path.open("rb") as file:
        return list(read_records(file))


async def _captured(spool: Spool) -> list[CaptureRecord]:
    """All that was captured, read back."""
    await spool.writer.close()
    return [record for path in spool.files(RAW) for record in _records(convert(path))]


@on_loop
async def test_request_and_response_are_captured_with_what_their_client_said(tmp_path: Path) -> None:
    """Parts are put together."""
    spool = Spool(tmp_path / "c", spec=_KNOWN_TYPES)
    headers = {
        "content-type": "text/csv; charset=utf-8",
        "x-amzn-sagemaker-inference-id": "mine",
        "x-amzn-sagemaker-custom-attributes": "trace=1",
        "x-amzn-sagemaker-target-model": "m.tar.gz",
    }
    spool.invoke([b"1,", b"2"], [b'{"a"', b": 1}"], headers=headers)
    (record,) = await _captured(spool)
    assert record.input is not None
    assert record.output is not None
    assert (record.input.body, record.input.encoding) == (b"1,2", "CSV")
    assert record.input.content_type == "text/csv; charset=utf-8"
    assert (record.output.body, record.output.encoding) == (b'{"a": 1}', "JSON")
    assert (record.inference_id, record.custom_attributes) == ("mine", ("trace=1",))
    assert record.target_model == "m.tar.gz"
    assert spool.meter.records == 1


@pytest.mark.parametrize(
    ("spec", "content_type", "encoding"),
    [
        (CAPTURE, "application/json", "BASE64"),
        (CAPTURE, "text/csv", "BASE64"),
        (_KNOWN_TYPES, "Application/JSON", "JSON"),
        (_KNOWN_TYPES, "application/x;a=b", "JSON"),
        (_KNOWN_TYPES, _BINARY, "BASE64"),
        (_KNOWN_TYPES, "", "BASE64"),
    ],
)
@on_loop
async def test_bodies_are_text_only_for_the_types_that_the_configuration_names(
    tmp_path: Path, spec: DataCapture, content_type: str, encoding: str
) -> None:
    """As SageMaker has it; the type itself is kept as it was sent."""
    spool = Spool(tmp_path / "c", spec=spec)
    spool.invoke([b"12"], headers={"content-type": content_type} if content_type else {})
    (record,) = await _captured(spool)
    assert record.input is not None
    assert (record.input.encoding, record.input.content_type) == (encoding, content_type)
    assert record.input.body == b"12"


@pytest.mark.parametrize(("inputs", "outputs"), [(True, False), (False, True)])
@on_loop
async def test_only_the_side_that_is_wanted_is_captured(tmp_path: Path, inputs: bool, outputs: bool) -> None:
    """The other one takes no memory either."""
    spool = Spool(tmp_path / "c", spec=DataCapture("s3://bucket", 100, inputs, outputs))
    spool.invoke([b"x" * 10], [b"y" * 7])
    assert spool.writer.memory.used == (10 if inputs else 7)
    (record,) = await _captured(spool)
    assert (record.input is not None, record.output is not None) == (inputs, outputs)
    assert spool.writer.memory.used == 0


@pytest.mark.parametrize("status", [400, 424, 499, 500, 503])
@on_loop
async def test_invocations_that_failed_are_not_captured(tmp_path: Path, status: int) -> None:
    """Neither are those whose client did not wait; they are nobody's loss, and are not counted."""
    spool = Spool(tmp_path / "c")
    spool.invoke(status=status)
    assert spool.writer.memory.used == 0
    assert await _captured(spool) == []
    assert spool.meter.dropped == 0


@on_loop
async def test_so_many_of_a_hundred_are_captured_as_asked(tmp_path: Path) -> None:
    """Each by chance, request and response together."""
    chances = cycle([0.0, 0.099, 0.1, 0.5, 0.999])
    spool = Spool(tmp_path / "c", spec=DataCapture("s3://bucket", 10), chance=lambda: next(chances))
    for number in range(50):
        spool.invoke([b"%d" % number])
    records = await _captured(spool)
    assert len(records) == 20
    assert all(record.input is not None and record.output is not None for record in records)


@on_loop
async def test_a_record_that_is_too_large_is_left_out_and_counted(tmp_path: Path) -> None:
    """Request and response count together; no byte of it stays in memory."""
    spool = Spool(tmp_path / "c", CaptureSettings(record_bytes=100))
    spool.invoke([b"x" * 60], [b"y" * 40])
    spool.invoke([b"x" * 60], [b"y" * 40, b"z"])
    spool.invoke([b"x" * 101], [b"y"])
    assert spool.writer.memory.used == 100
    assert len(await _captured(spool)) == 1
    assert spool.meter.too_large == 2
    assert spool.meter.dropped == 0


@on_loop
async def test_what_has_no_room_in_memory_is_dropped_and_counted(tmp_path: Path) -> None:
    """The bound holds while nothing is written, whatever is asked meanwhile."""
    spool = Spool(tmp_path / "c", CaptureSettings(memory_bytes=1000, flush_s=3600))
    for _ in range(100):
        spool.invoke([b"x" * 90], [b"y" * 10])
        assert spool.writer.memory.used <= 1000
    assert len(await _captured(spool)) == 10
    assert (spool.meter.records, spool.meter.dropped) == (10, 90)
    assert spool.writer.memory.used == 0


@on_loop
async def test_much_is_written_without_waiting(tmp_path: Path) -> None:
    """With so many bytes in memory."""
    spool = Spool(tmp_path / "c", CaptureSettings(flush_bytes=1000, flush_s=3600))
    for _ in range(12):
        spool.invoke([b"x" * 90], [b"y" * 10])
    await wait_until_async(lambda: spool.meter.records >= 10)
    await spool.writer.close()


@on_loop
async def test_what_was_answered_is_on_disk_soon(tmp_path: Path) -> None:
    """Without anything else being asked, whatever timer waits for the age of files."""
    spool = Spool(tmp_path / "c", CaptureSettings(flush_s=0.001, file_s=3600))
    spool.invoke()
    await wait_until_async(lambda: spool.meter.records == 1)
    spool.invoke()
    await wait_until_async(lambda: spool.meter.records == 2)
    await spool.writer.close()


@on_loop
async def test_files_are_complete_by_size_and_by_age(tmp_path: Path) -> None:
    """By age also if nothing more is asked."""
    spool = Spool(tmp_path / "c", CaptureSettings(file_bytes=2000, file_s=60))
    for _ in range(3):
        spool.invoke([b"x" * 1000])
        await spool.writer.flush()
    assert [_count(path) for path in spool.files(RAW)] == [2]
    assert [_count(path) for path in spool.files(OPEN)] == [1]
    spool.now += 59
    spool.writer._write()  # noqa: SLF001 - what its timer calls
    await spool.writer.flush()
    assert len(spool.files(RAW)) == 1
    spool.now += 1
    spool.writer._write()  # noqa: SLF001 - what its timer calls
    await spool.writer.flush()
    assert len(spool.files(RAW)) == 2
    await spool.writer.close()


def _with_free(usage: object, _: Path) -> object:
    return usage


@on_loop
async def test_a_disk_without_room_stops_capture_until_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more room than it stopped at, so that it does not come and go."""
    usage = shutil.disk_usage(tmp_path)
    spool = Spool(tmp_path / "c", CaptureSettings(free_bytes=1000))
    for free, records in ((999, 0), (1001, 0), (1250, 1), (1001, 2)):
        monkeypatch.setattr(shutil, "disk_usage", partial(_with_free, usage._replace(free=free)))
        spool.invoke()
        await spool.writer.flush()
        assert spool.meter.records == records
        assert spool.writer.is_stopped == (not records)
    assert spool.meter.dropped == 2
    assert spool.writer.memory.used == 0
    await spool.writer.close()


@on_loop
async def test_what_waits_on_disk_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever has written it; there is room again when some has been uploaded. It is told once."""
    spool = Spool(tmp_path / "c", CaptureSettings(spool_bytes=10_000, file_bytes=2_000))
    other = Spool(tmp_path / "c", CaptureSettings(spool_bytes=10_000, file_bytes=2_000))
    for number in range(40):
        each = (spool, other)[number % 2]
        spool.now = other.now = NOON + number
        each.invoke([b"%d" % number], [b"x" * 1000])
        await each.writer.flush()
    assert sum(path.stat().st_size for path in spool.files("")) <= 10_000
    assert spool.meter.records + other.meter.records == 8
    assert spool.meter.dropped + other.meter.dropped == 32
    stopped = [spool.writer.is_stopped]
    spool.files(RAW)[0].unlink()
    spool.now += 1
    spool.invoke()
    await spool.writer.flush()
    assert [*stopped, spool.writer.is_stopped] == [True, False]
    assert spool.meter.records + other.meter.records == 9
    told = [record.message for record in caplog.records]
    directory = tmp_path / "c"
    reason = f"data capture: records are dropped, as {directory} cannot take them: 0 MiB wait to be uploaded"
    assert told == [reason] * 2  # by each of them
    await spool.writer.close()
    await other.writer.close()


@on_loop
async def test_a_failed_write_leaves_whole_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written of it before the disk was full is taken back; what follows is in another file."""
    spool = Spool(tmp_path / "c")
    spool.invoke([b"first"])
    await spool.writer.flush()
    real = os.writev

    def writev(descriptor: int, buffers: list[bytes]) -> int:
        real(descriptor, [b"".join(buffers)[:20]])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", writev)
        spool.invoke([b"second"])
        await spool.writer.flush()
    (abandoned,) = spool.files(OPEN)
    assert not complete_abandoned(abandoned)
    spool.now += 1
    spool.invoke([b"third"])
    records = await _captured(spool)
    assert [record.input and record.input.body for record in records] == [b"first", b"third"]
    assert (spool.meter.records, spool.meter.dropped) == (2, 1)


@on_loop
async def test_a_directory_that_cannot_be_made_drops_and_counts(tmp_path: Path) -> None:
    """Invocations go on."""
    (tmp_path / "c").write_text("a file")
    spool = Spool(tmp_path / "c")
    spool.invoke()
    await spool.writer.flush()
    assert (spool.meter.records, spool.meter.dropped) == (0, 1)
    await spool.writer.close()


_PLACE = CapturePlace("123456789012", "us-east-1", "e", "v", "s3://bucket/some/prefix")
_ABOUT = {"eventId": "1", "time": NOON, "input": ["", "BASE64"], "output": ["", "BASE64"]}


@pytest.fixture
def abandoned(tmp_path: Path) -> Path:
    """A file of three frames whose writer has gone."""
    file = SpoolFile(tmp_path, _PLACE, NOON)
    for number in range(3):
        file.write(frame(_ABOUT, [b"asked", b"%d" % number], [b"answered"]))
    (path,) = tmp_path.glob(f"*{OPEN}")
    bytes_written = path.read_bytes()
    file.close()
    (complete,) = tmp_path.glob(f"*{RAW}")
    complete.unlink()
    path.write_bytes(bytes_written)
    return path


def test_a_file_cut_off_anywhere_loses_the_records_that_it_lacks(abandoned: Path) -> None:
    """Wherever that is."""
    whole = abandoned.read_bytes()
    ends = [len(whole) - index * ((len(whole) - whole.index(b"hal1")) // 3) for index in range(4)]
    for length in range(len(whole) + 1):
        abandoned.write_bytes(whole[:length])
        is_cut = complete_abandoned(abandoned)
        expected = sum(length >= end for end in ends[:3])
        complete = abandoned.with_suffix(RAW)
        assert complete.exists() == bool(expected)
        if expected:
            assert is_cut == (length not in ends)
            assert read_place(complete) == _PLACE
            done = convert(complete)
            assert (done.count, done.cut) == (expected, False)
            assert [record.input and record.input.body for record in _records(done)] == [
                b"asked%d" % number for number in range(expected)
            ]
            complete.unlink()
        assert not abandoned.exists()


def test_damage_in_the_middle_of_a_complete_file_is_told(abandoned: Path) -> None:
    """What is before it is good."""
    complete_abandoned(abandoned)
    complete = abandoned.with_suffix(RAW)
    data = bytearray(complete.read_bytes())
    second = data.index(b"hal1", data.index(b"hal1") + 1)
    data[second : second + 40] = bytes(40)
    complete.write_bytes(data)
    done = convert(complete)
    assert (done.count, done.cut) == (1, True)


@pytest.mark.parametrize("damage", [(b'"eventId"', b'"eventJd"'), (b'"time":', b'"tim":"')])
def test_damage_that_is_json_all_the_same_is_told(abandoned: Path, damage: tuple[bytes, bytes]) -> None:
    """The records before it are good, and no other file waits for this one."""
    complete_abandoned(abandoned)
    complete = abandoned.with_suffix(RAW)
    data = complete.read_bytes()
    second = data.index(b"hal1", data.index(b"hal1") + 1)
    assert damage[0] in data[second:]
    complete.write_bytes(data[:second] + data[second:].replace(*damage, 1))
    done = convert(complete)
    assert (done.count, done.cut) == (1, True)


def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    """Its writer holds its lock."""
    file = SpoolFile(tmp_path, _PLACE, NOON)
    file.write(frame(_ABOUT, [b"a"], []))
    (path,) = tmp_path.glob(f"*{OPEN}")
    assert not complete_abandoned(path)
    assert path.exists()
    file.close()
    assert [each.suffix for each in tmp_path.iterdir()] == [RAW]


def test_keys_are_sagemakers(abandoned: Path) -> None:
    """A folder for each hour, and the minute in the name."""
    url = _PLACE.url(abandoned.stem)
    identifier = abandoned.stem.partition("-")[2]
    assert len(identifier) == 36
    assert url == f"s3://bucket/some/prefix/e/v/2027/01/15/12/00-00-000-{identifier}.jsonl"
    plain = CapturePlace("1", "r", "e", "v", "s3://bucket/")
    assert plain.url(abandoned.stem).startswith("s3://bucket/e/v/2027/")


@given(st.lists(st.tuples(st.lists(st.binary(), max_size=3), st.lists(st.binary(), max_size=3)), max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
def test_all_bodies_come_back(tmp_path: Path, bodies: list[tuple[list[bytes], list[bytes]]]) -> None:
    """However many parts they had."""
    file = SpoolFile(tmp_path, _PLACE, NOON)
    for asked, answered in bodies:
        file.write(frame(_ABOUT, asked, answered))
    file.close()
    (path,) = tmp_path.glob(f"*{RAW}")
    records = _records(convert(path))
    path.unlink()
    assert [(each.input and each.input.body, each.output and each.output.body) for each in records] == [
        (b"".join(asked), b"".join(answered)) for asked, answered in bodies
    ]


def test_another_process_makes_the_records(abandoned: Path) -> None:
    """Several files at once."""
    complete_abandoned(abandoned)
    complete = abandoned.with_suffix(RAW)
    second = complete.with_name("20270115T120001000-x.raw")
    shutil.copy(complete, second)
    done = convert_apart([complete, second])
    assert [each.count for each in done] == [3, 3]
    assert done[0].path.read_bytes() == done[1].path.read_bytes()
