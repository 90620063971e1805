"""Making tar archives, entry by entry, that no archiver would make."""

import io
import tarfile

Entry = tuple[tarfile.TarInfo, bytes | None]


def file(name: str, data: bytes = b"data", mode: int = 0o644) -> Entry:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(data), mode, 1_600_000_000
    return info, data


def special(name: str, kind: bytes, target: str = "") -> Entry:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, None


def directory(name: str, mode: int = 0o755) -> Entry:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, mode
    return info, None


def symlink(name: str, target: str) -> Entry:
    return special(name, tarfile.SYMTYPE, target)


def hard_link(name: str, target: str) -> Entry:
    return special(name, tarfile.LNKTYPE, target)


def sparse(name: str, size: int, pieces: str = "0,0") -> Entry:
    """A file of that size with nothing in it but what the pieces (offset,length,…) say."""
    info = tarfile.TarInfo(name)
    info.pax_headers = {
        "GNU.sparse.map": pieces,
        "GNU.sparse.size": str(size),
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
    }
    return info, b""


def archive(*entries: Entry, mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
        for info, data in entries:
            tar.addfile(info, None if data is None else io.BytesIO(data))
    return buffer.getvalue()
