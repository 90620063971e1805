"""What a file that a framework cannot read looks like, for the end of an error's text."""

from pathlib import Path
from typing import Final

_SMALL: Final = 64
_STARTS: Final = (
    (
        b"version https://git-lfs",
        "it is a pointer of Git LFS, not the file itself; fetch that by 'git lfs pull'",
    ),
    (b"<!doctype html", "it is an HTML page, perhaps the error page of a download"),
    (b"<html", "it is an HTML page, perhaps the error page of a download"),
    (b"pk\x03\x04", "it is a zip archive, as PyTorch and Keras write; extract or export the model"),
    (b"\x1f\x8b", "it is compressed by gzip; decompress it"),
    (b"\x89hdf", "it is an HDF5 file, as Keras writes; export the model"),
    (b"\x80\x02", "it is a pickle; export the model"),
    (b"\x80\x03", "it is a pickle; export the model"),
    (b"\x80\x04", "it is a pickle; export the model"),
    (b"\x80\x05", "it is a pickle; export the model"),
)


def looks(path: Path) -> str:
    """What the file looks like, as a clause; "" if nothing is known of it."""
    try:
        with path.open("rb") as file:
            start = file.read(_SMALL + 1)
    except OSError:
        return ""
    plain = start.lstrip().lower()
    for signature, text in _STARTS:
        if plain.startswith(signature):
            return text
    if not start:
        return "it is empty"
    return f"it has only {len(start)} bytes" if len(start) <= _SMALL else ""
