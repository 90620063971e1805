"""Which regions may be registered, how they are listed, and which parts of them requests may name."""

import errno
import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.core.errors import (
    AlreadyExistsError,
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from halimede.frontends.http.routes import find_route
from halimede.frontends.http.shared_memory import SharedMemoryCalls
from halimede.frontends.shared_memory import registry
from halimede.frontends.shared_memory.registry import Place, Regions
from tests.frontends.shared_memory.support import FILE, Memory

UINT64_MAX = (1 << 64) - 1
Make = Callable[..., Memory]


@pytest.fixture
def regions() -> Iterator[Regions]:
    made = Regions(allowed=True)
    yield made
    made.system.unregister()


def refusal(regions: Regions, *arguments: Any, kind: type[HalimedeError] = InvalidArgumentError) -> str:
    with pytest.raises(kind) as error:
        regions.system.register("r", *arguments)
    assert regions.system.status() == []
    return error.value.message


@pytest.mark.parametrize(
    "key",
    ["", "/", "///", "/a/b", ".", "..", "/../dev/null", "/none-such", "x" * 300, "a\0b", "\ud800"],
)
def test_key_of_no_memory_is_an_internal_error_as_in_triton(regions: Regions, key: str) -> None:
    text = refusal(regions, key, 0, 4, kind=InternalError)
    assert text == f"Unable to open shared memory region: '{key}'"


@pytest.mark.parametrize(
    "key",
    [
        "/triton_python_backend_shm_region_1",
        "triton_python_backend_shm_region_",
        "//triton_python_backend_shm_region_x",
    ],
)
def test_key_with_the_prefix_of_triton_is_refused_as_such(regions: Regions, key: str) -> None:
    memory = FILE / key.lstrip("/")
    memory.touch()
    try:
        assert refusal(regions, key, 0, 4) == (
            f"cannot register shared memory region 'r' with key '{key}' as the key contains the reserved prefix "
            f"'triton_python_backend_shm_region_'"
        )
    finally:
        memory.unlink()


def test_what_is_no_plain_file_is_refused(regions: Regions, memory: Make) -> None:
    plain = memory()
    name = plain.key + "-other"
    path = FILE / name[1:]
    kinds: tuple[Callable[[], None], ...] = (
        partial(path.symlink_to, plain.path),
        partial(os.mkfifo, path),
        path.mkdir,
    )
    for make in kinds:
        make()
        try:
            assert (
                refusal(regions, name, 0, 4, kind=InternalError)
                == f"Unable to open shared memory region: '{name}'"
            )
        finally:
            path.rmdir() if stat.S_ISDIR(path.lstat().st_mode) else path.unlink()


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@contextmanager
def without_rights(memory: Memory) -> Iterator[None]:
    """As a user who may not open the memory."""
    memory.path.chmod(0o600 if os.geteuid() == 0 else 0)
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_memory_of_another_user_is_refused(regions: Regions, memory: Make) -> None:
    theirs = memory()
    with without_rights(theirs):
        text = refusal(regions, theirs.key, 0, 4, kind=InternalError)
        assert text == f"Unable to open shared memory region: '{theirs.key}'"


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, 0), (0, 4097), (4096, 1), (1, 4096), (UINT64_MAX, 16), (UINT64_MAX - 15, 16), (16, UINT64_MAX),
     (16, UINT64_MAX - 15)],
)  # fmt: skip
def test_region_beyond_its_memory_is_refused(regions: Regions, memory: Make, offset: int, size: int) -> None:
    key = memory(4096).key
    before = open_descriptors()
    assert refusal(regions, key, offset, size) == (
        f"failed to register shared memory region 'r': invalid args: '{key}' has 4096 bytes, and {size} at offset "
        f"{offset} are not a part of them"
    )
    assert open_descriptors() == before


def test_name_is_taken_until_it_is_unregistered(regions: Regions, memory: Make) -> None:
    first, second = memory(4096), memory(4096)
    regions.system.register("r", first.key, 0, 4096)
    with pytest.raises(AlreadyExistsError) as error:
        regions.system.register("r", second.key, 0, 4096)
    assert error.value.message == "shared memory region 'r' already in manager"
    with pytest.raises(AlreadyExistsError):
        regions.cuda.register("r", b"x" * 64, 0, 4096)
    regions.cuda.unregister("r")  # which is none of a GPU
    regions.cuda.unregister()
    assert [each.key for each in regions.system.status("r")] == [first.key]
    regions.system.unregister("none")
    regions.system.unregister("r")
    regions.system.unregister("r")
    regions.system.register("r", second.key, 8, 16)
    (region,) = regions.system.status()
    assert (region.name, region.key, region.offset, region.byte_size) == ("r", second.key, 8, 16)


def test_memory_may_be_registered_under_several_names(regions: Regions, memory: Make) -> None:
    key = memory(4096).key
    regions.system.register("a", key, 0, 4096)
    regions.system.register("b", key.lstrip("/"), 8, 16)
    regions.system.unregister("a")
    assert [each.name for each in regions.system.status()] == ["b"]


def test_status_of_what_is_not_there(regions: Regions, memory: Make) -> None:
    regions.system.register("r", memory(4096).key, 0, 4096)
    for kind, name, text in (
        (regions.system, "none", "Unable to find system shared memory region: 'none'"),
        (regions.cuda, "none", "Unable to find cuda shared memory region: 'none'"),
        (
            regions.cuda,
            "r",
            "The region named 'r' is registered as system shared memory, not CUDA shared memory",
        ),
    ):
        with pytest.raises(NotFoundError) as error:
            kind.status(name)
        assert error.value.message == text


@pytest.mark.parametrize(
    ("offset", "size", "text"),
    [
        (4096, 1, "Invalid offset for"),
        (UINT64_MAX, 1, "Invalid offset for"),
        (-1, 1, "Invalid offset for"),
        (0, 0, "Invalid offset + byte size for"),
        (0, -1, "Invalid offset + byte size for"),
        (0, 4097, "Invalid offset + byte size for"),
        (4095, 2, "Invalid offset + byte size for"),
        (1, UINT64_MAX, "Invalid offset + byte size for"),
        (16, UINT64_MAX - 15, "Invalid offset + byte size for"),
    ],
)
def test_part_that_is_not_in_the_region_is_refused(
    regions: Regions, memory: Make, offset: int, size: int, text: str
) -> None:
    regions.system.register("r", memory(8192).key, 100, 4096)
    with pytest.raises(InvalidArgumentError) as error:
        regions.piece(Place("r", offset, size))
    assert error.value.message == f"{text} shared memory region: 'r'"


@given(st.integers(-(2**64), 2**65), st.integers(-(2**64), 2**65))
def test_every_part_is_inside_its_region(offset: int, size: int) -> None:
    memory = Memory(8192)
    regions = Regions(allowed=True)
    try:
        regions.system.register("r", memory.key, 100, 4096)
        with suppress(InvalidArgumentError):
            piece = regions.piece(Place("r", offset, size))
            assert 100 <= piece[1] < piece[1] + piece.length <= 4196
    finally:
        regions.system.unregister()
        memory.close()


class _Exchange:
    """What a call needs of an exchange."""

    peer = "127.0.0.1"

    def __init__(self, body: bytes) -> None:
        self.body = memoryview(body)
        self.status = 0

    def respond(self, status: int, *_: object) -> None:
        self.status = status


def _dumps(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits, or a lone surrogate
        return repr(value).encode(errors="replace")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(
    st.sampled_from(["key", "offset", "byte_size", "raw_handle", "device_id"]),
    JSON | st.just({"b64": "eHg="}) | st.just("/none"),
)


@given(st.sampled_from(["system", "cuda"]), JSON.map(_dumps) | FIELDS.map(_dumps) | st.binary(max_size=40))
def test_any_body_is_registered_or_refused(kind: str, body: bytes) -> None:
    regions = Regions(allowed=True)
    route = find_route(f"/v2/{kind}sharedmemory/region/r/register")
    assert route is not None
    exchange: Any = _Exchange(body)
    with suppress(InvalidArgumentError):
        SharedMemoryCalls(regions, 1000).calls[route.call](exchange, route)
        assert exchange.status == 200
    assert not regions.system.status()


def test_nothing_may_be_registered_unless_allowed() -> None:
    with pytest.raises(UnsupportedError, match="--allow-client-shm=true"):
        Regions().check_allowed()


def test_regions_are_limited_in_number(
    regions: Regions, memory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "MAX_REGIONS", 2)
    key = memory().key
    for name in ("a", "b"):
        regions.system.register(name, key, 0, 4)
    with pytest.raises(UnavailableError) as raised:
        regions.system.register("c", key, 0, 4)
    assert raised.value.message == (
        "failed to register shared memory region 'c': the server has 2 of them, as many as it may; unregister those "
        "that are not used any more"
    )
    with pytest.raises(AlreadyExistsError):
        regions.system.register("a", key, 0, 4)
    regions.system.unregister("a")
    regions.system.register("c", key, 0, 4)
    assert sorted(region.name for region in regions.system.status()) == ["b", "c"]


def test_regions_leave_descriptors_for_other_requests(
    regions: Regions, memory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = memory().key
    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8, 8))  # fewer than are open
    with pytest.raises(UnavailableError) as raised:
        regions.system.register("a", key, 0, 4)
    assert raised.value.message == (
        f"Unable to open shared memory region: '{key}': out of file descriptors, of which this process may have 8; "
        "some are kept for other requests"
    )
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert list(regions.system.status()) == []


def test_a_region_that_gets_no_descriptor_is_told_so(
    regions: Regions, memory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = memory().key

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(
            UnavailableError, match=": out of file descriptors, of which this process may have "
        ):
            regions.system.register("a", key, 0, 4)
    regions.system.register("a", key, 0, 4)
    assert len(list(regions.system.status())) == 1
