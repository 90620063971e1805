"""What a file that a framework cannot read looks like, for the end of an error's text."""

import os
from itertools import islice
from pathlib import Path
from typing import Final

ZIP: Final = b"pk\x03\x04"
XML: Final = b"<?xml"

_LFS: Final = b"version https://git-lfs"
_SMALL: Final = 64
_MAX_FILES: Final = 1000
_MAX_NAMED: Final = 3
_PAGE: Final = "it is an HTML page, perhaps the error page of a download"
_PICKLE: Final = "it is a pickle; export the model"
_STARTS: Final = {
    _LFS: "it is a pointer of Git LFS, not the file itself; fetch that by 'git lfs pull'",
    b"<!doctype html": _PAGE,
    b"<html": _PAGE,
    XML: "it is XML, perhaps the error message of a download",
    ZIP: "it is a zip archive, as PyTorch and Keras write; extract or export the model",
    b"\x1f\x8b": "it is compressed by gzip; decompress it",
    b"\x89hdf": "it is an HDF5 file, as Keras writes; export the model",
    b"gguf": "it is a GGUF file of llama.cpp",
    b"\x80\x02": _PICKLE,
    b"\x80\x03": _PICKLE,
    b"\x80\x04": _PICKLE,
    b"\x80\x05": _PICKLE,
}


def looks(path: Path, usual: bytes = b"") -> str:
    """What the file looks like, as a clause; "" if nothing is known of it.

    Args:
        path: the file.
        usual: how files of its kind start, in lower case, so that this is not worth mentioning.
    """
    start = _start(path)
    if start is None:
        return ""
    plain = start.lstrip().lower()
    for signature, text in _STARTS.items():
        if plain.startswith(signature) and signature != usual:
            return text
    if not start:
        return "it is empty"
    return f"it has only {len(start)} bytes" if len(start) <= _SMALL else ""


def note(path: Path, usual: bytes = b"") -> str:
    """What to add to the error of a framework that cannot read the file: " (it is …)", or "" for nothing."""
    found = looks(path, usual)
    return f" ({found})" if found else ""


def note_of_pointers(directory: Path) -> str:
    """What to add to the error of a model that cannot be loaded, if files of it were never fetched; "" for nothing."""
    paths = (Path(parent, name) for parent, _, names in os.walk(directory) for name in sorted(names))
    pointers = [str(path.relative_to(directory)) for path in islice(paths, _MAX_FILES) if _is_pointer(path)]
    if not pointers:
        return ""
    more = f", and {len(pointers) - _MAX_NAMED} more" if len(pointers) > _MAX_NAMED else ""
    return (
        f" (pointers of Git LFS, to be fetched by 'git lfs pull': {', '.join(pointers[:_MAX_NAMED])}{more})"
    )


def _is_pointer(path: Path) -> bool:
    return (_start(path) or b"").startswith(_LFS)


def _start(path: Path) -> bytes | None:
    """The first bytes of the file; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_SMALL + 1)
    except OSError:
        return None
