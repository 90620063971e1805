"""`halimede completion`: what a shell needs to complete commands and flags."""

from typing import Final

import click
from click.shell_completion import get_completion_class

_FILES: Final = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/completions/halimede.fish"}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(_FILES)))
def command(shell: str) -> None:
    """Print the completion script for commands, flags and files in SHELL.

    bash and zsh: add `eval "$(halimede completion bash)"` to ~/.bashrc, or the same with zsh to ~/.zshrc. fish: write
    the output to ~/.config/fish/completions/halimede.fish.
    """
    from halimede.cli.main import halimede

    completion = get_completion_class(shell)
    assert completion is not None, "click has the three"
    click.echo(completion(halimede, {}, "halimede", "_HALIMEDE_COMPLETE").source())
