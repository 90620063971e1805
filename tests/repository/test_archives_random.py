"""Archives with any entries whatever: nothing outside the directory is made or changed, nor can be through a link."""

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from halimede.repository.archive_stream import ArchiveError
from halimede.repository.archives import ENVIRONMENT, Rules, extract
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

RULES = Rules(entries=50, ratio=1000, ratio_from=1_000_000)

parts = st.sampled_from(["a", "b", "c", "..", "..", ".", "", "bin", "python"])
names = st.lists(parts, min_size=1, max_size=5).map("/".join)
odd_names = st.one_of(
    names, st.sampled_from(["/", "/etc/passwd", "@outside", "@outside/victim", "\udcff", "a" * 300])
)
entries = st.one_of(
    st.builds(file, odd_names),
    st.builds(directory, odd_names, st.sampled_from([0, 0o755])),
    st.builds(symlink, odd_names, odd_names),
    st.builds(symlink, names, names),
    st.builds(hard_link, odd_names, odd_names),
    st.builds(hard_link, names, names),
    st.builds(special, names, st.sampled_from([b"3", b"4", b"6", b"V", b"Z"])),
    st.builds(sparse, names, st.sampled_from([0, 100, 10**15])),
)


def assert_harmless(data: bytes) -> None:
    """Whatever an archive is, it is extracted or refused, and nothing beside the directory changes."""
    with bystanders() as target, suppress(ArchiveError):
        extract(io.BytesIO(data), target, RULES)
        assert target.is_dir()


@contextmanager
def bystanders() -> Iterator[Path]:
    """A directory to extract into, beside which nothing may change."""
    with tempfile.TemporaryDirectory() as place:
        target, outside = Path(place, "x/y/target"), Path(place, "outside")
        target.mkdir(parents=True)
        outside.mkdir()
        (outside / "victim").write_text("untouched")
        (target.parent / "a").write_text("untouched")
        before = _snapshot(Path(place), target)
        yield target
        assert _snapshot(Path(place), target) == before


def _snapshot(place: Path, target: Path) -> dict[Path, tuple[int, int, int, bytes]]:
    """What lies outside the target: mode, number of names, time of change, content."""
    found = {}
    for path in (place, *place.rglob("*")):
        if path != target and target not in path.parents:
            status = path.lstat()
            links = 0 if path.is_dir() else status.st_nlink
            content = path.read_bytes() if path.is_file() else b""
            found[path] = (status.st_mode, links, status.st_ctime_ns, content)
    return found


def _aim(entry: Entry, outside: Path) -> Entry:
    info, data = entry
    info.name = info.name.replace("@outside", str(outside))
    info.linkname = info.linkname.replace("@outside", str(outside))
    return info, data


@settings(max_examples=150, deadline=None)
@example([directory("a"), symlink("a/b", ".."), symlink("c", "a/b/../outside"), file("c")], RULES)
@example([symlink("bin/python", "@outside/victim"), file("bin/python")], ENVIRONMENT)
@example([symlink("bin/python", "@outside"), hard_link("a", "bin/python/victim")], ENVIRONMENT)
@example([directory("a/b"), symlink("a/b/c", "../.."), hard_link("c", "a/b/c")], RULES)
@given(st.lists(entries, max_size=10), st.sampled_from([RULES, ENVIRONMENT]))
def test_no_entries_reach_out_of_the_directory(some: list[Entry], rules: Rules) -> None:
    with bystanders() as target:
        outside = target.parent.parent.parent / "outside"
        data = archive(*(_aim(entry, outside) for entry in some), mode="w")
        if rules is ENVIRONMENT and any(info.size > 1000 or info.pax_headers for info, _ in some):
            rules = RULES  # not to write a petabyte
        try:
            extract(io.BytesIO(data), target, rules)
        except ArchiveError:
            return
        for path in target.rglob("*"):
            if not path.is_symlink():
                assert path.stat().st_mode & 0o600 == 0o600
            elif rules is RULES:
                assert Path(os.path.realpath(path)).is_relative_to(target.resolve())


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_damage_does_anything_but_have_the_archive_refused(data: st.DataObject) -> None:
    mode = data.draw(st.sampled_from(["w", "w:gz"]))
    whole = bytearray(
        archive(
            file("a/b", b"x" * 700),
            sparse("c", 2000, "0,0,512,1"),
            symlink("d", "a/b"),
            file("e" * 200),
            mode=mode,
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(0, len(whole) - 1))
        whole[where] = data.draw(st.integers(0, 255))
    if mode == "w" and data.draw(st.booleans()):
        # the first header's checksum, or `tarfile` would look no further
        whole[148:156] = b" " * 8
        whole[148:156] = b"%06o\0 " % sum(whole[:512])
    assert_harmless(bytes(whole))


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "path", "linkpath", "size", "mtime", "uid", "hdrcharset", "GNU.sparse.major", "GNU.sparse.minor",
                "GNU.sparse.realsize", "GNU.sparse.size", "GNU.sparse.map", "GNU.sparse.name", "GNU.sparse.numblocks",
            ]
        ),
        st.sampled_from(["0", "1", "-1", "5", "1e400", "nan", "9" * 30, "", "x", "0,0", "3,-9", "1,1,0", "../q", "/q"]),
    ),
    st.binary(max_size=600),
)  # fmt: skip
def test_no_extended_header_does_either(headers: dict[str, str], content: bytes) -> None:
    info, _ = file("a", content)
    info.pax_headers = headers
    assert_harmless(archive((info, content), file("b"), mode="w"))
