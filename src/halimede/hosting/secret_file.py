"""Secrets of the host: random bytes in files of their own, so that another process of the host has the same ones."""

import logging
import os
import secrets
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger("halimede")

_SECRET_BYTES = 32


def read_secret(path: Path, uses: str) -> bytes:
    """The secret in a file, which is made if there is none. Blocks.

    Args:
        path: the file.
        uses: what will not hold after a restart if it cannot be written, for the log.
    """
    with suppress(FileNotFoundError):
        secret = path.read_bytes()
        if len(secret) == _SECRET_BYTES:
            return secret
    secret = secrets.token_bytes(_SECRET_BYTES)
    try:
        _write(path, secret)
    except OSError as error:
        logger.warning("%s will not hold after a restart: %s: %s", uses, path, error.strerror)
    return secret


def _write(path: Path, secret: bytes) -> None:
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret)
        os.fsync(file.fileno())
    beside.rename(path)
