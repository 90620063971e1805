"""The command line of `halimede infer`."""

import difflib
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

import click

_DEFAULT_URL: Final = "http://localhost:8000"


@click.command("infer")
@click.argument("model")
@click.option(
    "-i",
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Input value: JSON such as '[[1, 2]]', a string, or @FILE for a .npy, .json or picture file, or any file's "
    "bytes. Repeatable.",
)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    metavar="NAME",
    help="Output to return; by default all. Repeatable.",
)
@click.option(
    "--classes",
    type=click.IntRange(1),
    metavar="COUNT",
    help="Show the COUNT highest values of each output, with labels.",
)
@click.option("--version", default="", metavar="NUMBER", help="Version of the model; by default the highest.")
@click.option(
    "-p",
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Parameter of the request. Repeatable.",
)
@click.option(
    "--url",
    default=_DEFAULT_URL,
    show_default=True,
    envvar="HALIMEDE_URL",
    help="Address of the server: http://, https:// or grpc:// with host and port. Or set HALIMEDE_URL.",
)
@click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="Header to send. Repeatable.")
@click.option(
    "--timeout",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Maximum time for an answer.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line per response.")
def command(
    model: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    classes: int | None,
    version: str,
    parameters: tuple[str, ...],
    url: str,
    headers: tuple[str, ...],
    timeout: float,
    as_json: bool,
) -> None:
    """Send one request to MODEL on a running server, and print the answer.

    Values are converted to the model's datatypes; a missing batch dimension is added. Without --input, the command
    shows the model's inputs.
    """
    from halimede.cli.infer import results
    from halimede.cli.infer.remote import RemoteError, RemoteRequest, UnknownModelError
    from halimede.cli.infer.values import read_value

    sent = dict(_pair(each, ":", "--header") for each in headers)
    remote = _remote(url, sent, timeout)
    try:
        described = remote.model(model, version)
        given = dict(_pair(each, "=", "--input") for each in inputs)
        known = {each.name: each for each in described.inputs}
        _check_names(given, known, "--input", f"model '{model}' takes no input")
        _check_names(
            outputs, [each.name for each in described.outputs], "--output", f"model '{model}' has no output"
        )
        missing = [each for each in described.inputs if each.name not in given and not each.optional]
        if missing:
            raise click.UsageError(_missing(described, missing))
        if classes and not outputs:
            outputs = tuple(each.name for each in described.outputs)
        request = RemoteRequest(
            model,
            version,
            {name: read_value(text, known[name]) for name, text in given.items()},
            {name: known[name].datatype for name in given},
            outputs,
            classes or 0,
            dict(_parameter(each) for each in parameters),
        )
        show = results.as_json if as_json else results.as_table
        responses = remote.stream(request) if described.decoupled else [remote.infer(request)]
        datatypes = {each.name: each.datatype.name for each in described.outputs}
        for response in responses:
            click.echo(
                show([replace(each, datatype=each.datatype or datatypes[each.name]) for each in response])
            )
    except UnknownModelError as error:
        raise click.ClickException(_unknown(remote, model, str(error))) from None
    except RemoteError as error:
        raise click.ClickException(str(error)) from None


def _remote(url: str, headers: dict[str, str], timeout_s: float) -> Any:
    from halimede.cli.infer.grpc import GrpcRemote
    from halimede.cli.infer.http import HttpRemote
    from halimede.cli.infer.remote import RemoteError

    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.scheme not in ("http", "https", "grpc"):
        raise click.UsageError(
            f"--url: '{url}' is no address of a server, such as {_DEFAULT_URL} or grpc://localhost:8001"
        )
    if parts.scheme == "grpc":
        try:
            return GrpcRemote(parts.netloc, headers, timeout_s)
        except RemoteError as error:
            raise click.UsageError(str(error)) from None
    return HttpRemote(parts.geturl(), headers, timeout_s)


def _pair(text: str, sign: str, option: str) -> tuple[str, str]:
    name, found, value = text.partition(sign)
    if not (name and found):
        raise click.UsageError(f"{option}: '{text}' must have the form NAME{sign}VALUE")
    return name.strip(), value.strip() if sign == ":" else value


def _parameter(text: str) -> tuple[str, bool | int | float | str]:
    name, value = _pair(text, "=", "--parameter")
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = value
    return name, parsed if isinstance(parsed, (bool, int, float, str)) else value


def _check_names(given: Iterable[str], known: Iterable[str], option: str, complaint: str) -> None:
    names = list(known)
    for name in given:
        if name not in names:
            nearest = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean '{nearest[0]}'?" if nearest else f"there are {', '.join(names) or 'none'}"
            raise click.UsageError(f"{option}: {complaint} '{name}'; {hint}")


def _missing(model: Any, missing: list[Any]) -> str:
    from halimede.cli.infer.values import example

    wanted = "; ".join(map(str, model.inputs))
    line = " ".join(f"--input {example(each)}" for each in missing)
    return f"model '{model.name}' takes {wanted}. Give what is missing, for instance: {line}"


def _unknown(remote: Any, model: str, reason: str) -> str:
    from halimede.cli.infer.remote import RemoteError

    try:
        names = remote.models()
    except RemoteError:
        return reason
    if model in names:
        return reason
    nearest = difflib.get_close_matches(model, names, n=1)
    hint = f"did you mean '{nearest[0]}'? " if nearest else ""
    return f"there is no model '{model}'; {hint}The server has {', '.join(sorted(names)) or 'none'}"
