"""Starts a program that sees directories of its own: `python -m halimede.hosting.substrates.launcher PLAN`.

The plan is JSON: ``empty`` (a directory in which nothing else is seen), ``mounts`` (what is seen there → what is there
really), ``kept`` (files and directories that are seen as before where a mount would hide them), ``shm_bytes`` (the size
of `/dev/shm`) and ``command``.
The program gets a user and a mount namespace (`unshare`, Linux), in which no right is needed to mount; nobody else
sees what is mounted there. The process stays the same, so that whoever started this knows the program's number.
"""

import ctypes
import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000

UNABLE = 90
"""How this exits if namespaces are not allowed, or a directory cannot be mounted."""

_NOT_STARTED = 127
"""How this exits if the program cannot be started; shells do so too."""


def main() -> None:
    """Make the namespaces and become the program."""
    plan: dict[str, Any] = json.loads(sys.argv[1])
    try:
        _enter()
        # by descriptors: what is there may be hidden before it is mounted
        descriptors = {
            seen: os.open(real, os.O_PATH | os.O_DIRECTORY) for seen, real in plan["mounts"].items()
        } | {kept: os.open(kept, os.O_PATH) for kept in plan["kept"]}
        _empty(Path(plan["empty"]))
        for seen, descriptor in descriptors.items():
            _bind(Path(seen), f"/proc/self/fd/{descriptor}")
            os.close(descriptor)
        if plan["shm_bytes"]:
            _mount("tmpfs", "/dev/shm", "tmpfs", 0, f"size={plan['shm_bytes']},mode=1777")  # noqa: S108 - its own
    except OSError as error:
        sys.stderr.write(f"cannot give the instance directories of its own: {error}\n")
        sys.exit(UNABLE)
    command = plan["command"]
    if not command:
        return
    try:
        os.execvp(command[0], command)  # noqa: S606 - that is what this is for
    except OSError as error:
        sys.stderr.write(f"cannot start '{command[0]}': {error.strerror}\n")
        sys.exit(_NOT_STARTED)


def _enter() -> None:
    """Enter a user and a mount namespace, as the same user as before."""
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_USERS | _NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "user namespaces are not allowed here")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount("none", "/", None, _RECURSIVE | _PRIVATE, None)


def _empty(directory: Path) -> None:
    """Let a directory be empty, for this program only, whether it is there or not."""
    if directory.is_dir():
        _mount("tmpfs", str(directory), "tmpfs", 0, "size=1m")
        return
    above = directory.parent
    while not above.is_dir():
        above = above.parent
    if above == above.parent:
        raise OSError(errno.ENOENT, f"there is no {directory.parent} to make a directory in")
    # where the directory lacks: a copy of what is above it, which shows what was there
    held = {
        entry.name: entry.readlink() if entry.is_symlink() else os.open(entry, os.O_PATH)
        for entry in above.iterdir()
    }
    _mount("tmpfs", str(above), "tmpfs", 0, "size=1m,mode=755")
    for name, what in held.items():
        if isinstance(what, Path):
            (above / name).symlink_to(what)
            continue
        real = Path(f"/proc/self/fd/{what}")
        (above / name).mkdir() if real.is_dir() else (above / name).touch()
        _mount(str(real), str(above / name), None, _BIND | _RECURSIVE, None)
        os.close(what)
    directory.mkdir(parents=True)


def _bind(seen: Path, real: str) -> None:
    """Let a directory or file be seen at another place."""
    if Path(real).is_dir():
        seen.mkdir(parents=True, exist_ok=True)
    else:
        seen.touch()
    _mount(real, str(seen), None, _BIND | _RECURSIVE, None)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(
        source.encode(),
        target.encode(),
        kind and kind.encode(),
        ctypes.c_ulong(flags),
        options and options.encode(),
    ):
        error = ctypes.get_errno()
        raise OSError(error, f"mount of {target}: {os.strerror(error)}")


if __name__ == "__main__":
    main()
