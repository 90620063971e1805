import gzip
import importlib
import io
import os
import struct
import subprocess
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from halimede.repository import archive_links
from halimede.repository.archive_stream import ArchiveError
from halimede.repository.archives import ENVIRONMENT, NO_ROOM, REFUSED, NoRoomError, Rules, command, extract
from tests.repository.archive_entries import (
    Entry,
    archive,
    directory,
    file,
    hard_link,
    sparse,
    special,
    symlink,
)

MODEL = Rules(entries=10, ratio=50, ratio_from=100_000)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    directory = tmp_path / "target"
    directory.mkdir()
    return directory


def unpack(target: Path, *entries: Entry, rules: Rules = ENVIRONMENT) -> None:
    extract(io.BytesIO(archive(*entries)), target, rules)


def refusal(target: Path, *entries: Entry, rules: Rules = ENVIRONMENT) -> str:
    """Why the entries are refused; nothing outside the directory has come or gone."""
    outside = target.parent / "outside"
    outside.write_text("untouched")
    with pytest.raises(ArchiveError) as caught:
        unpack(target, *entries, rules=rules)
    assert sorted(each.name for each in target.parent.iterdir()) == ["outside", "target"]
    assert outside.read_text() == "untouched"
    assert outside.stat().st_nlink == 1
    return str(caught.value)


# What is extracted


@pytest.mark.parametrize("mode", ["w:gz", "w", "w:xz", "w:bz2"])
def test_every_compression_is_recognised(target: Path, mode: str) -> None:
    data = os.urandom(3_000_000)
    extract(io.BytesIO(archive(file("lib/a", data), file("./lib/b"), mode=mode)), target, ENVIRONMENT)
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
        ("lib", "..", "Path contains '..' and leaves the directory: '..', to which 'lib' links"),
        ("a/b", "../../x", "Path contains '..' and leaves the directory: '../../x', to which 'a/b' links"),
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
    assert refusal(target, file("c/d"), file("c")).startswith("'c': ")


@pytest.mark.parametrize("mode", ["w:gz", "w", "w:xz", "w:bz2"])
def test_an_archive_that_ends_early_is_refused_wherever_it_was_cut(tmp_path: Path, mode: str) -> None:
    whole = archive(file("a", os.urandom(2000)), file("b", os.urandom(300)), mode=mode)
    # uncompressed ones are padded: what is missing there is not missed
    end = len(whole) if mode != "w" else 512 + 2048 + 512 + 512
    for size in range(0, end, 37):
        target = tmp_path / str(size)
        target.mkdir()
        with pytest.raises(ArchiveError, match=r"it is (truncated or damaged|no tar archive): "):
            extract(io.BytesIO(whole[:size]), target, ENVIRONMENT)


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
        extract(io.BytesIO(data), target, ENVIRONMENT)


def test_a_header_that_is_damaged_does_not_end_the_archive(target: Path) -> None:
    data = bytearray(archive(file("a"), file("b"), mode="w"))
    data[1024] ^= 1  # the name of the second, so its checksum is wrong
    with pytest.raises(ArchiveError, match="it is truncated or damaged: it has no end"):
        extract(io.BytesIO(bytes(data)), target, ENVIRONMENT)


def test_zstd_is_refused_with_what_would_be_right_where_python_cannot_read_it(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(
        ArchiveError, match=r"compressed with zstd, which the .* cannot read; pack it as \.tar\.gz"
    ):
        extract(io.BytesIO(b"\x28\xb5\x2f\xfd" + bytes(100)), target, ENVIRONMENT)


def test_a_full_disk_is_told(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    opened = iter([descriptor])
    monkeypatch.setattr(os, "open", lambda *_, **__: next(opened))
    with pytest.raises(
        NoRoomError,
        match=r"No space left on device: 'a' needs 4 bytes after the 0 that came before it, and [\d,]+ bytes are free$",
    ):
        unpack(target, file("a"))


def test_memory_does_not_grow_with_the_archive(tmp_path: Path) -> None:
    """A file of 160 MB is extracted with less than 100 MB of address space to spare."""
    path = tmp_path / "big.tar.gz"
    big = tarfile.TarInfo("big")
    big.size = 160 << 20
    with tarfile.open(path, "w:gz", compresslevel=1) as tar, Path("/dev/zero").open("rb") as zeros:
        tar.addfile(big, zeros)
    target = tmp_path / "target"
    target.mkdir()
    result = run(path, target, ENVIRONMENT, address_space=100 << 20)
    assert (result.returncode, result.stderr) == (0, "")
    assert (target / "big").stat().st_size == big.size
    (target / "big").unlink()


# Links that lead through others


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([symlink("a", "b/.."), symlink("b", "sub/deep"), directory("sub/deep")], id="forward"),
        pytest.param(
            [symlink("b", "sub/deep"), symlink("a", "b/../.."), directory("sub/deep")], id="up twice"
        ),
        pytest.param([symlink("d/one", "../two"), symlink("two", "./d//three"), file("d/three")], id="chain"),
        pytest.param([symlink("a", "missing")], id="to nothing"),
        pytest.param([directory("d"), symlink("d/top", "..")], id="to the top"),
    ],
)
def test_a_link_may_lead_through_others_where_it_stays_inside(target: Path, entries: list[Entry]) -> None:
    unpack(target, *entries, rules=MODEL)
    [*links] = (each for each in target.rglob("*") if each.is_symlink())
    assert links
    for each in links:
        assert each.resolve().is_relative_to(target)


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        pytest.param(
            [directory("d"), symlink("d/b", ".."), symlink("a", "d/b/..")],
            "leaves the directory: 'd/b/..', to which 'a' links",
            id="through a link up",
        ),
        pytest.param(
            [symlink("a", "d/b/../x"), directory("d"), symlink("d/b", "..")],
            "leaves the directory: 'd/b/../x', to which 'a' links",
            id="before it is a link",
        ),
        pytest.param(
            [directory("one/two"), symlink("one/two/l", "../../x"), hard_link("h", "one/two/l")],
            "leaves the directory: '../../x', to which 'h' links",
            id="another name of a link, elsewhere",
        ),
        pytest.param([symlink("a", "missing/../../x")], "leaves the directory: ", id="through nothing"),
        pytest.param([symlink("a", "a")], "'a' links in a circle", id="to itself"),
        pytest.param([symlink("a", "b/x"), symlink("b", "a/y")], "links in a circle", id="to each other"),
        pytest.param([symlink("bin/python", "/usr/bin/python")], "Path is absolute: ", id="interpreter"),
    ],
)
def test_a_link_that_leaves_through_others_is_refused(target: Path, entries: list[Entry], text: str) -> None:
    assert text in refusal(target, *entries, rules=MODEL)


def test_a_link_may_lead_to_the_interpreters_link_but_not_through_it(target: Path) -> None:
    unpack(target, symlink("bin/python", "/usr/bin"), symlink("interpreter", "bin/python"))
    text = refusal(target, symlink("bin/python", "/usr"), symlink("x", "bin/python/lib"))
    assert text == "'x' leads through 'bin/python', a link that may leave the directory"
    assert "'y' links" in refusal(target, symlink("bin/python", "/usr"), hard_link("y", "bin/python"))


def test_a_link_that_has_been_replaced_is_not_followed(target: Path) -> None:
    unpack(
        target,
        file("kept"),
        symlink("a", "../out"),
        file("a"),
        symlink("b", "../out"),
        hard_link("b", "kept"),
        rules=MODEL,
    )
    assert (target / "a").read_bytes() == (target / "b").read_bytes() == b"data"


def test_links_that_take_long_to_follow_are_refused(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = [symlink(f"l{i}", f"l{i + 1}") for i in range(40)]
    unpack(target, *chain)
    text = refusal(target, *chain, symlink("l40", "l41"))
    assert text == "'l0' links in a circle, or leads through too many links"
    monkeypatch.setattr(archive_links, "_MAX_STEPS", 1000)
    assert "leads through too many links" in refusal(
        target, *(symlink(f"m{i}", "x/" * 99) for i in range(11))
    )


# What archives may hold


def test_an_entry_for_the_directory_itself_is_nothing_special(target: Path) -> None:
    unpack(target, directory("./", 0), directory("./m", 0), file("./m/f", mode=0), rules=MODEL)
    assert (target / "m/f").read_bytes() == b"data"
    assert (target / "m/f").stat().st_mode & 0o777 == 0o600
    assert target.stat().st_mode & (target / "m").stat().st_mode & 0o700 == 0o700


def test_nobody_else_may_write_to_what_was_extracted(target: Path) -> None:
    unpack(target, file("f", mode=0o6777), rules=MODEL)
    assert (target / "f").stat().st_mode & 0o7777 == 0o755


def test_as_many_entries_as_there_may_be_are_extracted_and_no_more(target: Path) -> None:
    few = [directory("d"), *(file(f"d/{i}") for i in range(9))]
    unpack(target, *few, rules=MODEL)
    text = refusal(target, *few, symlink("one", "d"), rules=MODEL)
    assert text == "it holds more than 10 files, directories and links: 'one' is one too many"


def test_directories_that_no_entry_names_count_too(target: Path) -> None:
    assert "is one too many" in refusal(target, file("a/b/c/d/e/f/g/h/i/j/k"), rules=MODEL)


def test_entries_that_repeat_count_too(target: Path) -> None:
    assert "is one too many" in refusal(target, *[directory("./")] * 11, rules=MODEL)


def test_names_that_are_too_deep_are_refused(target: Path) -> None:
    assert "lies in more than 100 directories" in refusal(target, file("d/" * 101 + "f"))


def test_what_is_small_may_be_compressed_as_well_as_it_likes(target: Path) -> None:
    unpack(target, file("zeros", bytes(90_000)), rules=MODEL)
    assert (target / "zeros").stat().st_size == 90_000


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        pytest.param(
            [file("zeros", bytes(1_500_000))],
            "'zeros' takes what is in it to more than 100,000 bytes, the most for an archive of its size",
            id="one file",
        ),
        pytest.param(
            [file(f"zeros{i}", bytes(30_000)) for i in range(5)],
            "'zeros3' takes what is in it to more than 100,000 bytes",
            id="many files",
        ),
        pytest.param(
            [sparse("hole", 10**15)], "'hole' takes what is in it to more than 100,000 bytes", id="sparse"
        ),
        pytest.param([directory("d")] * 300, "it decompresses to more than 100,000 bytes", id="headers"),
    ],
)
def test_a_bomb_is_refused_before_it_is_written(target: Path, entries: list[Entry], text: str) -> None:
    rules = Rules(ratio=50, ratio_from=100_000)
    assert text in refusal(target, *entries, rules=rules)
    assert sum(each.stat().st_size for each in target.rglob("*")) < 200_000


def test_what_comes_after_the_last_entry_is_not_decompressed_for_ever(target: Path) -> None:
    packed = gzip.compress(archive(file("a"), mode="w") + bytes(10_000_000))
    with pytest.raises(ArchiveError, match="it decompresses to more than 1,000,000 bytes"):
        extract(io.BytesIO(packed), target, Rules(ratio=50, ratio_from=1_000_000))


def test_a_sparse_file_is_extracted_whole(target: Path) -> None:
    info, _ = sparse("holes", 10_000, "2000,4,9000,3")
    info.size = 7
    unpack(target, (info, b"datAend"), rules=MODEL)
    assert (target / "holes").read_bytes() == bytes(2000) + b"datA" + bytes(6996) + b"end" + bytes(997)


def test_a_sparse_file_with_pieces_out_of_order_is_refused(target: Path) -> None:
    assert "pieces of a sparse file overlap" in refusal(target, sparse("a", 100, "50,1,10,1"), rules=MODEL)
    assert "pieces of a sparse file overlap" in refusal(target, sparse("a", 100, "50,-1"), rules=MODEL)


def test_the_map_of_a_sparse_file_that_never_ends_is_refused(target: Path) -> None:
    """`tarfile` would look for the rest of it for ever."""
    info = tarfile.TarInfo("a")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "5"}
    info.size = 512
    data = archive((info, b"9999\n".ljust(512, b"\n")), mode="w")
    with pytest.raises(ArchiveError, match="it is truncated or damaged"):
        extract(io.BytesIO(data[: data.rindex(b"9999") + 512]), target, MODEL)


def test_headers_that_are_too_large_for_memory_are_refused(target: Path) -> None:
    assert "headers of an entry are too large" in refusal(target, file("d/" * 600_000 + "f"))


def test_a_chain_of_headers_without_end_is_refused(target: Path) -> None:
    link = tarfile.TarInfo("././@LongLink")
    link.type, link.size = tarfile.GNUTYPE_LONGNAME, 1
    block = link.tobuf(tarfile.GNU_FORMAT) + b"x".ljust(512, b"\0")
    with pytest.raises(ArchiveError, match="it is truncated or damaged"):
        extract(io.BytesIO(block * 1000 + bytes(1024)), target, MODEL)


def test_names_with_null_bytes_are_refused(target: Path) -> None:
    info = tarfile.TarInfo("a")
    info.pax_headers = {"path": "b\0c"}
    assert "embedded null" in refusal(target, (info, b""))


def test_names_are_told_in_one_short_line(target: Path) -> None:
    assert (
        refusal(target, file("../\n\x1b" + "y" * 300)) == r"Path contains '..': '../\n\x1b" + "y" * 195 + "…'"
    )


def test_a_file_in_the_place_of_the_directory_itself_is_refused(target: Path) -> None:
    for entry in (file("."), symlink(".", "x"), hard_link("./", "y")):
        assert refusal(target, entry).startswith(("'.': ", "'./': ", "'': "))


# Room on the disk


class Status(NamedTuple):
    """What `os.statvfs` tells."""

    f_bavail: int
    f_frsize: int
    f_blocks: int


def test_a_file_that_does_not_fit_is_refused_before_it_is_written(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: Status(2, 1024, 100))
    rules = Rules(reserve=1000)
    unpack(target, file("small", bytes(1048)), rules=rules)
    with pytest.raises(NoRoomError) as caught:
        unpack(target, file("small"), file("large", bytes(1049)), rules=rules)
    assert str(caught.value) == (
        "the disk has no room: 'large' needs 1,049 bytes after the 4 that came before it, and 2,048 bytes are free, "
        "of which 1,000 are to stay free"
    )
    assert not (target / "large").exists()


def test_a_file_system_that_does_not_tell_its_size_is_taken_as_it_is(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: Status(0, 1024, 0))
    unpack(target, file("a"), rules=MODEL)
    assert (target / "a").read_bytes() == b"data"


# The program


def run(path: Path, target: Path, rules: Rules, address_space: int = 0) -> "subprocess.CompletedProcess[str]":
    words = command(target, rules)
    if address_space:
        limit = (
            f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({address_space}, {address_space})); "
        )
        words[words.index("-c") + 1] = limit + words[words.index("-c") + 1]
    with path.open("rb") as archive:
        return subprocess.run(words, stdin=archive, capture_output=True, text=True, check=False)


def test_the_program_says_in_one_line_why_an_archive_is_refused(target: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(archive(file("../\udcff")))
    result = run(path, target, ENVIRONMENT)
    assert (result.returncode, result.stdout) == (REFUSED, "")
    assert result.stderr == "Path contains '..': '../\\udcff'\n"


def test_the_program_tells_a_full_disk_from_a_bad_archive(target: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(archive(file("a")))
    result = run(path, target, Rules(reserve=1 << 60))
    assert result.returncode == NO_ROOM
    assert result.stderr.startswith("the disk has no room: 'a' needs 4 bytes")


def test_an_archive_that_takes_gigabytes_of_memory_to_decompress_is_refused(
    target: Path, tmp_path: Path
) -> None:
    data = bytearray(archive(file("a", os.urandom(1000)), mode="w:xz"))
    # the size of the window, in the header of the block, and that header's checksum
    header = bytearray(data[12:24])
    assert header[2:4] == b"\x21\x01"
    header[4] = 39  # 3 GiB
    data[12:20] = header[:8]
    data[20:24] = struct.pack("<I", zlib.crc32(header[:8]))
    path = tmp_path / "a.tar.xz"
    path.write_bytes(data)
    result = run(path, target, ENVIRONMENT)
    assert result.returncode == REFUSED
    assert "it takes more than 1,073,741,824 bytes of memory" in result.stderr
