"""Secrets on a command line: given as they are, in a file or in an environment variable, and never shown."""

import os
from pathlib import Path
from typing import Final

HIDDEN: Final = "***"
"""What is shown in place of a secret."""

_FILE: Final = "file:"
_VARIABLE: Final = "env:"
_MAX_BYTES: Final = 65_536


def read_secret(text: str) -> str:
    """The secret that a flag's value stands for.

    Args:
        text: ``file:PATH`` for the one line of a file, ``env:NAME`` for an environment variable, or the secret itself.

    Raises:
        ValueError: there is none, or none that can stand in a header; the text does not repeat it.
    """
    if text.startswith(_FILE):
        path = text.removeprefix(_FILE)
        try:
            with Path(path).open("rb") as file:
                content = file.read(_MAX_BYTES)
        except OSError as error:
            msg = f"cannot read the file '{path}': {error.strerror}"
            raise ValueError(msg) from None
        secret, where = content.decode("utf-8", "replace").strip(), f"the file '{path}'"
    elif text.startswith(_VARIABLE):
        name = text.removeprefix(_VARIABLE)
        secret, where = os.environ.get(name, ""), f"the environment variable {name}"
    else:
        return text
    if not secret:
        msg = f"{where} is not set or empty"
        raise ValueError(msg)
    if not (secret.isascii() and secret.isprintable() and secret == secret.strip()):
        msg = f"{where} must hold one line of printable ASCII characters, without spaces around it"
        raise ValueError(msg)
    return secret


def shown(text: str) -> str:
    """What may be shown of a flag's value: where the secret comes from, never the secret itself."""
    return text if text.startswith((_FILE, _VARIABLE)) else HIDDEN
