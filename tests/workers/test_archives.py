import importlib
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from halimede.workers import archives
from halimede.workers.archives import ArchiveError, extract

Entry = tuple[tarfile.TarInfo, bytes | None]


def file(name: str, data: bytes = b"data", mode: int = 0o644) -> Entry:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(data), mode, 1_600_000_000
    return info, data


def special(name: str, kind: bytes, target: str = "") -> Entry:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, None


def symlink(name: str, target: str) -> Entry:
    return special(name, tarfile.SYMTYPE, target)


def hard_link(name: str, target: str) -> Entry:
    return special(name, tarfile.LNKTYPE, target)


def archive(*entries: Entry, mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
        for info, data in entries:
            tar.addfile(info, None if data is None else io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    directory = tmp_path / "target"
    directory.mkdir()
    return directory


def unpack(target: Path, *entries: Entry) -> None:
    extract(io.BytesIO(archive(*entries)), target)


def refusal(target: Path, *entries: Entry) -> str:
    """Why the entries are refused; nothing outside the directory has come or gone."""
    outside = target.parent / "outside"
    outside.write_text("untouched")
    with pytest.raises(ArchiveError) as caught:
        unpack(target, *entries)
    assert sorted(each.name for each in target.parent.iterdir()) == ["outside", "target"]
    assert outside.read_text() == "untouched"
    assert outside.stat().st_nlink == 1
    return str(caught.value)


# What is extracted


@pytest.mark.parametrize("mode", ["w:gz", "w", "w:xz", "w:bz2"])
def test_every_compression_is_recognised(target: Path, mode: str) -> None:
    data = os.urandom(3_000_000)
    extract(io.BytesIO(archive(file("lib/a", data), file("./lib/b"), mode=mode)), target)
    assert (target / "lib/a").read_bytes() == data
    assert (target / "lib/b").read_bytes() == b"data"


def test_files_keep_their_times_and_modes_but_not_setuid(target: Path) -> None:
    unpack(target, file("bin/tool", mode=0o4755), file("secret", mode=0o600), file("fixed", mode=0o444))
    found = (target / "bin/tool").stat()
    assert (found.st_mode & 0o7777, found.st_mtime) == (0o755, 1_600_000_000)
    assert (target / "secret").stat().st_mode & 0o7777 == 0o600
    # conda-unpack writes to files
    assert (target / "fixed").stat().st_mode & 0o7777 == 0o644


def test_links_within_the_environment_are_made(target: Path) -> None:
    unpack(
        target,
        file("lib/libz.so.1"),
        symlink("lib/libz.so", "libz.so.1"),
        symlink("lib64", "lib"),
        symlink("bin/lib", "../lib"),
        hard_link("copy", "lib/libz.so.1"),
    )
    for each in ("lib/libz.so", "lib64/libz.so", "bin/lib/libz.so.1", "copy"):
        assert (target / each).read_bytes() == b"data"
    assert (target / "copy").samefile(target / "lib/libz.so.1")


def test_a_virtual_environments_link_to_its_interpreter_is_made(target: Path) -> None:
    unpack(target, symlink("bin/python3", "/usr/bin/python3"), symlink("bin/python", "python3"))
    assert str((target / "bin/python3").readlink()) == "/usr/bin/python3"


def test_a_later_entry_replaces_an_earlier_one(target: Path) -> None:
    unpack(target, file("a", b"one"), hard_link("b", "a"), file("a", b"two"))
    assert ((target / "a").read_bytes(), (target / "b").read_bytes()) == (b"two", b"one")


def test_long_and_strange_names_are_kept(target: Path) -> None:
    name = "d" * 150 + "/" + "f" * 200 + "\udcff ü"
    unpack(target, file(name))
    assert (target / name).read_bytes() == b"data"


# What is refused


def test_a_name_that_climbs_out_is_refused(target: Path) -> None:
    assert refusal(target, file("lib/../../outside")) == "Path contains '..': 'lib/../../outside'"


def test_an_absolute_name_is_refused(target: Path) -> None:
    name = str(target.parent / "outside")
    assert refusal(target, file(name)) == f"Path is absolute: '{name}'"


@pytest.mark.parametrize(
    ("name", "to", "text"),
    [
        ("lib", "..", "Path contains '..' and leaves the environment: '..', to which 'lib' links"),
        ("a/b", "../../x", "Path contains '..' and leaves the environment: '../../x', to which 'a/b' links"),
        ("a/b", "c/../../..", "Path contains '..' and leaves"),
        ("lib/python", "/usr/lib/python", "Path is absolute: '/usr/lib/python', to which 'lib/python' links"),
        ("bin/sh", "/bin/sh", "Path is absolute: '/bin/sh', to which 'bin/sh' links"),
    ],
)
def test_a_link_that_leaves_the_environment_is_refused(target: Path, name: str, to: str, text: str) -> None:
    assert text in refusal(target, symlink(name, to))


def test_a_hard_link_to_what_lies_outside_is_refused(target: Path) -> None:
    outside = target.parent / "outside"
    assert "Path is absolute" in refusal(target, hard_link("a", str(outside)))
    assert "Path contains '..'" in refusal(target, hard_link("a", "../outside"))


def test_nothing_is_written_through_links(target: Path) -> None:
    # the one kind of link that may lead out
    escape = symlink("bin/python", str(target.parent))
    text = refusal(target, escape, file("bin/python/outside"))
    assert text == "'bin/python/outside' leads through 'bin/python', which is a link or a file"
    assert "leads through" in refusal(target, escape, hard_link("a", "bin/python/outside"))
    assert "leads through" in refusal(target, escape, special("bin/python/new", tarfile.DIRTYPE))
    assert "leads through" in refusal(target, escape, symlink("bin/python/new", "x"))


def test_a_file_in_the_place_of_a_link_does_not_change_what_the_link_points_to(target: Path) -> None:
    outside = target.parent / "outside"
    outside.write_text("untouched")
    unpack(target, symlink("bin/python", str(outside)), file("bin/python"))
    assert outside.read_text() == "untouched"
    assert (target / "bin/python").read_bytes() == b"data"


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_refused(target: Path, kind: bytes) -> None:
    assert refusal(target, special("null", kind)) == "'null' is a device or another special file"


def test_a_file_and_a_directory_of_one_name_are_refused(target: Path) -> None:
    assert "'a/b' leads through 'a', which is a link or a file" in refusal(target, file("a"), file("a/b"))
    assert f"'{target}/c'" in refusal(target, file("c/d"), file("c"))


@pytest.mark.parametrize("mode", ["w:gz", "w", "w:xz", "w:bz2"])
def test_an_archive_that_ends_early_is_refused_wherever_it_was_cut(tmp_path: Path, mode: str) -> None:
    whole = archive(file("a", os.urandom(2000)), file("b", os.urandom(300)), mode=mode)
    # uncompressed ones are padded: what is missing there is not missed
    end = len(whole) if mode != "w" else 512 + 2048 + 512 + 512
    for size in range(0, end, 37):
        target = tmp_path / str(size)
        target.mkdir()
        with pytest.raises(ArchiveError, match=r"it is (truncated or damaged|no tar archive): "):
            extract(io.BytesIO(whole[:size]), target)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda data: data[:-6] + b"\0\0" + data[-4:], id="checksum"),
        pytest.param(lambda data: data[:1000] + bytes(100) + data[1100:], id="middle"),
        pytest.param(lambda data: b"PK\3\4" + data, id="zip"),
        pytest.param(lambda data: b"\x1f\x8bthis is no gzip", id="not gzip"),
    ],
)
def test_a_damaged_archive_is_refused(target: Path, spoil: Callable[[bytes], bytes]) -> None:
    data = spoil(archive(file("a", os.urandom(20_000))))
    with pytest.raises(ArchiveError, match=r"it is (truncated or damaged|no tar archive): "):
        extract(io.BytesIO(data), target)


def test_a_header_that_is_damaged_does_not_end_the_archive(target: Path) -> None:
    data = bytearray(archive(file("a"), file("b"), mode="w"))
    data[1024] ^= 1  # the name of the second, so its checksum is wrong
    with pytest.raises(ArchiveError, match="it is truncated or damaged: it has no end"):
        extract(io.BytesIO(bytes(data)), target)


def test_zstd_is_refused_with_what_would_be_right_where_python_cannot_read_it(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(
        ArchiveError, match=r"compressed with zstd, which the .* cannot read; pack it as \.tar\.gz"
    ):
        extract(io.BytesIO(b"\x28\xb5\x2f\xfd" + bytes(100)), target)


def test_a_full_disk_is_told(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    opened = iter([descriptor])
    monkeypatch.setattr(os, "open", lambda *_, **__: next(opened))
    with pytest.raises(ArchiveError, match="No space left on device"):
        unpack(target, file("a"))


def test_memory_does_not_grow_with_the_archive(tmp_path: Path) -> None:
    """A file of 300 MB is extracted with less than 100 MB of address space to spare."""
    path = tmp_path / "big.tar.gz"
    big = tarfile.TarInfo("big")
    big.size = 300 << 20
    with tarfile.open(path, "w:gz", compresslevel=1) as tar, Path("/dev/zero").open("rb") as zeros:
        tar.addfile(big, zeros)
    target = tmp_path / "target"
    target.mkdir()
    program = (
        "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_AS, (100 << 20, 100 << 20)); "
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    with path.open("rb") as archive:
        subprocess.run(
            [sys.executable, "-c", program, archives.__file__, str(target)], stdin=archive, check=True
        )
    assert (target / "big").stat().st_size == big.size
    (target / "big").unlink()
