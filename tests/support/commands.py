"""The command `halimede`, called in this process: for commands that end before they serve anything."""

import io
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import NoReturn

import pytest

from halimede.cli import tuning
from halimede.cli.main import main


def call_command(
    *arguments: str, environment: Mapping[str, str] | None = None, given: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    """What `halimede` with those arguments writes, and its exit status, without the time that a process takes.

    Args:
        arguments: those of the command line.
        environment: its environment variables; those of this process if None.
        given: what it reads from standard input.
    """
    streams = [io.TextIOWrapper(io.BytesIO(data), "utf-8", write_through=True) for data in (given, b"", b"")]
    root = logging.getLogger()
    kept, level = root.handlers, root.level
    with pytest.MonkeyPatch.context() as patch:
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        patch.setattr(tuning, "keep_freed_memory", _serves)
        if environment is not None:
            for name in os.environ.keys() - environment.keys():
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
        root.handlers = []
        try:
            main(list(arguments))
        except SystemExit as ended:
            status = ended.code
        finally:
            logging.captureWarnings(capture=False)
            for handler in root.handlers:
                handler.close()
            root.handlers = kept
            root.setLevel(level)
    assert isinstance(status, int)
    _, out, err = (stream.buffer.getvalue() for stream in streams)
    return subprocess.CompletedProcess(["halimede", *arguments], status, out, err)


def call_text_command(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """The same with what was written as text."""
    done = call_command(*arguments, environment=environment)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def _serves() -> NoReturn:
    raise AssertionError("this command tunes its process, to serve in it; call it with `run_command`")
