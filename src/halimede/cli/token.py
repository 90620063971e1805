"""`halimede token`: make a bearer token, and the line by which the server knows it."""

import click

from halimede.frontends.tokens import new_token, token_line


@click.command("token", short_help="Make a bearer token for --token-file.")
@click.argument("name")
def command(name: str) -> int:
    """Make a bearer token for the user NAME.

    The token is written to standard error, once and nowhere else. The line for the server's --token-file, with only the
    token's hash, is written to standard output:

        halimede token ci >> tokens
    """
    if not name or ":" in name or name.startswith("#") or any(character.isspace() for character in name):
        msg = f"'{name}' cannot name a token: a name has no colons and no spaces, and does not begin with #"
        raise click.UsageError(msg)
    token = new_token()
    click.echo(token, err=True)
    click.echo(token_line(name, token))
    return 0
