"""What the command line makes of the commands in `deploy/`."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from halimede.cli.flags import serve_command
from halimede.cli.hosting.host import command as host_command
from halimede.cli.options import ServeOptions


def options(arguments: Sequence[str]) -> dict[str, Any]:
    """The options of `halimede serve …` or `halimede host …`, defaults too."""
    assert Path(arguments[0]).name == "halimede"
    name, *rest = arguments[1:]
    if name == "host":
        return dict(host_command.make_context(name, rest).params)
    assert name == "serve"
    found: list[ServeOptions] = []

    def run(given: ServeOptions, remarks: list[str]) -> int:
        assert remarks == []
        found.append(given)
        return 0

    serve_command(run).main(rest, standalone_mode=False)
    return {field.name: getattr(found[0], field.name) for field in fields(ServeOptions)}
