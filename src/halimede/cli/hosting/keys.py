"""Which access keys `halimede host` has: from a file, from an environment variable, or generated."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from halimede.core.origins import is_local

if TYPE_CHECKING:
    from halimede.hosting.access.keys import Key

GENERATE = ("network", "always", "never")
"""When a key is generated: if the host listens beyond loopback; always; never."""


@dataclass(frozen=True, slots=True)
class HostKeys:
    """The host's keys.

    Attributes:
        keys: by id; None to let anybody in.
        shown: the one that `--print-env` prints; None for none.
        path: the file of a generated key; None if there is none.
        is_new: the key has just been generated.
    """

    keys: "Mapping[str, Key] | None" = None
    shown: "Key | None" = None
    path: Path | None = None
    is_new: bool = False


def find_keys(
    file: Path | None, generate: str, directory: Path, address: str, account: str, *, look: bool
) -> HostKeys:
    """The keys of a host.

    Args:
        file: of `--keys`.
        generate: of `GENERATE`.
        directory: where the host keeps everything.
        address: where it listens.
        account: of keys that name none.
        look: generate nothing, only look.

    Raises:
        click.UsageError: they cannot be read, or are given twice.
    """
    from halimede.hosting.access.keys import KeysError, read_keys
    from halimede.hosting.access.own_keys import VARIABLE, generated_keys, generated_path, keys_of

    variable = os.environ.get(VARIABLE)
    if file is not None and variable is not None:
        raise click.UsageError(f"--keys and {VARIABLE} both give keys; use one of them")
    path = generated_path(directory)
    is_needed = generate == "always" or (generate == "network" and not is_local(address))
    try:
        if file is not None:
            return HostKeys(read_keys(file))
        if variable is not None:
            keys = keys_of(variable, account)
            return HostKeys(keys, next(iter(keys.values())))
        is_there = (generate != "never" and path.exists()) if look else is_needed
        if not is_there and is_needed:
            click.echo(
                f"halimede: there is no key in {path} yet; the host's first start generates it", err=True
            )
            return HostKeys({})
        if not is_there:
            return HostKeys()
        keys, is_new = generated_keys(directory, account)
    except KeysError as error:
        raise click.UsageError(str(error)) from None
    return HostKeys(keys, next(iter(keys.values())), path, is_new)
