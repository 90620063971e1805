"""Files that a repository has in the place of a model, and what errors say that they look like."""

import pytest

ZIP = b"PK\x03\x04" + bytes(range(1, 200))

FOREIGN = (
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n", "it is a pointer of Git LFS"),
    (b"\n<!DOCTYPE html>\n<html><body>Not found</body></html>" * 9, "it is an HTML page"),
    (b"\x1f\x8b" + bytes(range(1, 200)), "it is compressed by gzip"),
    (b"\x80\x04\x95" + b"sklearn" * 30, "it is a pickle"),
    (b"GGUF" + bytes(range(1, 200)), "it is a GGUF file"),
    (b"not a model!", "it has only 12 bytes"),
)
"""Content, and a part of the error's text."""

each_foreign_file = pytest.mark.parametrize(
    ("content", "text"), FOREIGN, ids=[text.rpartition(" ")[2] for _, text in FOREIGN]
)
"""Runs a test with each of these contents, which no backend can read."""
