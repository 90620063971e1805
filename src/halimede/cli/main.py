"""The command `halimede`: its sub-commands, each imported only when it runs."""

import difflib
import importlib
import sys
from typing import NoReturn

import click

from halimede import __version__

COMMANDS = {
    "serve": "halimede.cli.serve",
    "sagemaker-serve": "halimede.cli.sagemaker.command",
    "host": "halimede.cli.hosting.host",
    "endpoints": "halimede.cli.hosting.endpoints",
    "jobs": "halimede.cli.hosting.jobs",
    "models": "halimede.cli.hosting.models",
    "infer": "halimede.cli.infer.command",
    "init": "halimede.cli.init",
    "invoke": "halimede.cli.hosting.invoke",
    "logs": "halimede.cli.hosting.logs",
    "capture": "halimede.cli.hosting.capture",
    "baseline": "halimede.cli.hosting.baseline",
    "check": "halimede.cli.check.command",
    "pack": "halimede.cli.sagemaker.pack",
    "token": "halimede.cli.token",
    "bench": "halimede.cli.bench.command",
    "top": "halimede.cli.top",
    "tune": "halimede.cli.tune",
    "build-engine": "halimede.cli.build_engine",
    "completion": "halimede.cli.completion",
}
"""Sub-command → the module whose `command` it is."""


class _Commands(click.Group):
    """The sub-commands, by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name]).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The sub-command that the arguments begin with; an unknown one is answered with the nearest and all."""
        name = args[0]
        if name in COMMANDS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        nearest = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean '{nearest[0]}'?" if nearest else ""
        raise click.UsageError(
            f"No such command '{name}'.{hint} The commands are {', '.join(COMMANDS)}.", ctx
        )


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="halimede")
def halimede() -> None:
    """Serve machine-learning models, and host them like SageMaker."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; what it got wrong is told in one line on standard error."""
    run_command(halimede, "halimede", arguments)


def run_command(command: click.Command, name: str, arguments: list[str] | None = None) -> NoReturn:
    """Run a command under its name and exit with its status; an error is told in one line on standard error.

    A command that is used wrongly exits with 2, one that fails with 1.
    """
    try:
        status = command.main(arguments, prog_name=name, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        click.echo(f"{name}: {error.format_message()}", err=True)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)
