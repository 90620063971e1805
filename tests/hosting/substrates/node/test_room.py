"""What models may take on the disk of a node."""

import gzip
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from halimede.hosting.store.source import Offer
from halimede.hosting.substrates.node.store import HeldModel
from tests.hosting.substrates.node.serving import (
    MIB,
    ArchiveServer,
    Asked,
    Handler,
    archive,
    archive_server,
)
from tests.hosting.substrates.node.taking import Taking

DISK_MIB = 400
"""256 MiB of it have to stay free when an archive is extracted."""


def take_and_release(node: Taking, offer: Offer) -> Path:
    """Where a model is as long as it is not evicted."""
    held = node.take(offer)
    held.release()
    return held.directory


def test_the_least_recently_used_model_goes_first(server: ArchiveServer, tmp_path: Path) -> None:
    clock = [1e9]
    node = Taking(tmp_path / "node", limit=4 * MIB + MIB // 2, now=lambda: clock[0])
    a, b, c, d = (server.offer(archive(MIB), name) for name in "abcd")
    directories = {}
    for offer in (a, b, a, c):
        clock[0] += 1
        directories[offer.name] = take_and_release(node, offer)
    assert 3 * MIB < node.store.used_bytes() < 4 * MIB
    clock[0] += 1
    directories[d.name] = take_and_release(node, d)  # it needs two MiB while it is fetched
    there = [name for name, directory in directories.items() if directory.exists()]
    assert there == [a.name, c.name, d.name]


def test_a_model_in_use_is_not_evicted(server: ArchiveServer, tmp_path: Path) -> None:
    node = Taking(tmp_path / "node", limit=4 * MIB)
    a, b, c = (server.offer(archive(MIB), name) for name in "abc")
    first, again = node.take(a), node.take(a)
    node.take(b).release()
    first.release()
    held = node.take(c)
    assert (again.directory / "simple/1/weights").stat().st_size == MIB
    error = node.refusal(b)
    assert (error.code, error.status) == ("InsufficientStorage", 507)
    used = again.disk_bytes + held.disk_bytes
    assert f"s3://models/b.tar.gz needs {2 * b.size:,} bytes of disk" in error.message
    assert f"may take {4 * MIB:,} bytes together, and models in use take {used:,} of them" in error.message
    again.release()
    node.take(b)


def test_nothing_is_evicted_for_a_model_that_cannot_fit(server: ArchiveServer, tmp_path: Path) -> None:
    node = Taking(tmp_path / "node", limit=4 * MIB)
    a, b = (server.offer(archive(MIB), name) for name in "ab")
    first = take_and_release(node, a)
    held = node.take(b)
    for size in (2 * MIB, 3 * MIB):
        assert node.refusal(server.offer(archive(size), "large")).status == 507
    held.release()
    assert first.exists()
    assert held.directory.exists()


def test_an_archive_that_becomes_more_than_its_size_is_held_to_the_limit(
    server: ArchiveServer, tmp_path: Path
) -> None:
    node = Taking(tmp_path / "node", limit=6 * MIB)
    a, b = (server.offer(archive(MIB), name) for name in "ab")
    first = node.take(a)
    second = take_and_release(node, b)
    packed = gzip.compress(archive(4 * MIB, zeros=True))
    large = server.offer(packed, "large")
    held = node.take(large)  # b has to go for it
    assert held.disk_bytes >= 4 * MIB
    assert not second.exists()
    held.release()
    larger = server.offer(gzip.compress(archive(6 * MIB, zeros=True)), "larger")
    error = node.refusal(larger)
    assert error.status == 507
    assert "s3://models/larger.tar.gz" in error.message
    first.release()
    assert node.store.used_bytes() <= 6 * MIB


def test_room_that_a_fetch_takes_for_a_while_is_waited_for(server: ArchiveServer, tmp_path: Path) -> None:
    node = Taking(tmp_path / "node", limit=3 * MIB)
    a, b = (server.offer(archive(700_000), name) for name in "ab")
    server.gate.clear()
    arrived = threading.Event()

    def serve(handler: Handler, asked: Asked) -> None:
        arrived.set()
        handler.serve(asked)

    server.faults = [serve]
    first = node.process(a)
    try:
        assert arrived.wait(60)
        # two MiB are kept for the first, and the second will fit when that is made
        larger = Taking(tmp_path / "node", limit=2_200_000)
        held: list[HeldModel] = []
        thread = threading.Thread(target=lambda: held.append(larger.take(b)))
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        server.gate.set()
        first.wait_for("directory")
        thread.join(60)
        assert len(held) == 1
    finally:
        server.gate.set()
        first.kill()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system, mounted while the test runs."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_disk_without_room_is_told_of_before_anything_is_fetched(server: ArchiveServer, disk: Path) -> None:
    node = Taking(disk / "node")
    offer = server.offer(archive(100 * MIB))
    error = node.refusal(offer)
    needed = 2 * offer.size + 256 * MIB
    assert (error.code, error.status) == ("InsufficientStorage", 507)
    assert f"s3://models/model.tar.gz needs {needed:,} bytes of disk" in error.message
    assert f"are free on the disk of {disk / 'node'}" in error.message
    assert server.asked == []
    assert node.names() == []


def test_models_that_nobody_uses_make_room_on_a_full_disk(server: ArchiveServer, disk: Path) -> None:
    node = Taking(disk / "node")
    a, b, c = (server.offer(archive(40 * MIB), name) for name in "abc")
    node.take(a).release()
    held = node.take(b)
    take_and_release(node, c)
    assert len(node.names()) == 2
    assert (held.directory / "simple/1/weights").stat().st_size == 40 * MIB
    held.release()


def test_a_model_that_becomes_more_than_was_thought_makes_room_while_it_is_extracted(
    server: ArchiveServer, disk: Path
) -> None:
    node = Taking(disk / "node")
    a = server.offer(archive(40 * MIB), "a")
    node.take(a).release()
    large = server.offer(gzip.compress(archive(120 * MIB, zeros=True), 1), "large")
    held = node.take(large)
    assert held.disk_bytes >= 120 * MIB
    assert len(node.names()) == 1
    held.release()
    huge = server.offer(gzip.compress(archive(300 * MIB, zeros=True), 1), "huge")
    error = node.refusal(huge)
    assert (error.code, error.status) == ("InsufficientStorage", 507)
    assert "'s3://models/huge.tar.gz'" in error.message
    assert node.store.used_bytes() == 0


SIZES = (100_000, 300_000, 500_000, 900_000)
Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["take", "take", "release"]), st.integers(0, len(SIZES) - 1)), max_size=14
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(limit=st.sampled_from([1_000_000, 1_500_000, 2_200_000, 3_000_000]), steps=STEPS)
def test_any_sequence_of_uses_keeps_to_the_limit(limit: int, steps: list[Step]) -> None:
    with archive_server() as server, ExitStack() as cleaning:
        directory = Path(tempfile.mkdtemp())
        cleaning.callback(shutil.rmtree, directory)
        clock = [1e9]
        node = Taking(directory / "node", limit=limit, now=lambda: clock[0])
        offers = [server.offer(archive(size), f"m{index}") for index, size in enumerate(SIZES)]
        held: dict[int, list[HeldModel]] = {index: [] for index in range(len(SIZES))}
        there: dict[int, int] = {}  # model → bytes on disk, the least recently used first
        for kind, index in steps:
            clock[0] += 1
            if kind == "release":
                if held[index]:
                    held[index].pop().release()
                continue
            fetched = len(server.asked)
            if index in there:
                there[index] = there.pop(index)
                held[index].append(node.take(offers[index]))
                assert len(server.asked) == fetched
                continue
            needed = 2 * offers[index].size
            going = []
            left = sum(there.values())
            for other in there:
                if left + needed > limit and not held[other]:
                    going.append(other)
                    left -= there[other]
            if left + needed > limit:
                assert node.refusal(offers[index]).status == 507
                assert len(server.asked) == fetched
            else:
                for other in going:
                    del there[other]
                held[index].append(node.take(offers[index]))
                there[index] = held[index][-1].disk_bytes
                assert len(server.asked) == fetched + 1
            assert node.store.used_bytes() == sum(there.values()) <= limit
            assert len(node.names()) == len(there)
            for models in held.values():
                assert all((model.directory / "simple/1/weights").is_file() for model in models)
        for models in held.values():
            for model in models:
                model.release()
