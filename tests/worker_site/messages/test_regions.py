"""Regions of clients as a worker maps them: what models may do to their inputs, and what comes of it."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from halimede_worker.messages import regions
from halimede_worker.messages.regions import Region, RegionError

PAGE = 4096
SIZE = 8 * PAGE


@pytest.fixture
def file() -> Iterator[int]:
    with tempfile.TemporaryFile(dir="/dev/shm") as opened:
        os.write(opened.fileno(), bytes(range(256)) * (SIZE // 256))
        yield opened.fileno()


@pytest.fixture
def region(file: int) -> Region:
    return Region(SIZE, os.dup(file))


def open_descriptors(file: int) -> int:
    """How many descriptors of the file this process has open."""
    return sum(
        os.path.sameopenfile(file, int(each.name))
        for each in Path("/proc/self/fd").glob("*")
        if each.exists()
    )


def client_writes(file: int, offset: int, data: bytes) -> None:
    os.pwrite(file, data, offset)


def test_array_shows_the_clients_bytes_as_they_are(region: Region, file: int) -> None:
    array = region.take(PAGE + 1, 3)
    assert array.tolist() == [1, 2, 3]
    client_writes(file, PAGE + 1, b"xyz")
    assert array.tobytes() == b"xyz"


@pytest.mark.parametrize("pagemap", [True, False])
def test_what_a_model_writes_is_neither_the_clients_nor_the_next_requests(
    region: Region, file: int, pagemap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not pagemap:
        monkeypatch.setattr(regions, "_PAGEMAP", "/none")
    for _ in range(3):
        array = region.take(10, 2 * PAGE)
        assert array[0] == 10
        array[:] = 0
        assert os.pread(file, 2, 10) == b"\n\x0b"
        del array


def test_arrays_that_overlap_do_not_see_each_others_changes(region: Region) -> None:
    first = region.take(0, 100)
    second = region.take(50, 100)
    apart = region.take(2 * PAGE, 100)
    first[:] = 7
    assert second[0] == 50
    second[:] = 8
    assert first.tolist() == [7] * 100
    assert apart[0] == 0


def test_a_copy_for_one_array_does_not_outlast_the_other(region: Region, file: int) -> None:
    view = region.take(0, 100)[10:20].reshape(2, 5)
    copy = region.take(0, 100)
    client_writes(file, 0, b"z" * 100)
    assert copy[0] == 0
    assert view[0, 0] == ord("z")
    del view
    assert region.take(0, 100)[0] == ord("z")


def test_detached_array_keeps_its_bytes_and_later_ones_do_not_have_them(region: Region, file: int) -> None:
    kept = region.take(5, 3 * PAGE)[100:]
    before = kept.tobytes()
    region.detach()
    region.detach()
    client_writes(file, 0, bytes(SIZE))
    assert kept.tobytes() == before
    assert not region.take(5, 3 * PAGE).any()
    del kept
    assert not region.take(5, 3 * PAGE).any()


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.float16, np.int64])
def test_output_is_written_to_the_clients_memory(region: Region, file: int, dtype: type) -> None:
    data: np.ndarray = np.arange(6).reshape(2, 3).astype(dtype)
    region.put(12, data)
    assert os.pread(file, data.nbytes, 12) == data.tobytes()
    assert region.take(12, data.nbytes).tobytes() == data.tobytes()


def test_output_into_memory_that_has_no_pages_yet(file: int) -> None:
    os.ftruncate(file, 0)
    os.ftruncate(file, SIZE)
    region = Region(SIZE, os.dup(file))
    for value in (1, 2):
        region.put(PAGE - 2, np.full(4, value, np.uint8))
        assert os.pread(file, 5, PAGE - 2) == bytes([value] * 4 + [0])


def test_region_that_became_shorter_is_an_error_and_works_again_when_it_is_longer(
    region: Region, file: int
) -> None:
    text = f"the client's shared memory has {PAGE} bytes, and {2 * PAGE} are needed"
    for _ in range(2):
        assert region.take(PAGE, PAGE).size == PAGE
        region.put(PAGE, np.zeros(PAGE, np.uint8))
        os.ftruncate(file, PAGE)
        with pytest.raises(RegionError) as error:
            region.take(PAGE, PAGE)
        assert str(error.value) == text
        with pytest.raises(RegionError) as error:
            region.put(PAGE, np.zeros(PAGE, np.uint8))
        assert str(error.value) == text
        assert os.fstat(file).st_size == PAGE
        assert region.take(0, PAGE).size == PAGE
        os.ftruncate(file, SIZE)


def test_copy_of_a_region_that_became_shorter_is_an_error(region: Region, file: int) -> None:
    first = region.take(0, 2 * PAGE)
    os.ftruncate(file, PAGE)
    with pytest.raises(RegionError):
        region.take(0, 2 * PAGE)
    assert first.size == 2 * PAGE


def test_region_that_was_short_when_it_was_first_mapped(region: Region, file: int) -> None:
    os.ftruncate(file, PAGE)
    assert region.take(0, PAGE).size == PAGE
    os.ftruncate(file, SIZE)
    assert region.take(0, SIZE).size == SIZE


def test_descriptor_is_closed_with_the_region(file: int) -> None:
    region = Region(SIZE, os.dup(file))
    array = region.take(0, 4)
    region.put(PAGE, np.zeros(4, np.uint8))
    assert open_descriptors(file) == 4  # the test's, the region's, and one of each mapping
    del region
    assert open_descriptors(file) == 2
    assert array.tolist() == [0, 1, 2, 3]
    del array
    assert open_descriptors(file) == 1
