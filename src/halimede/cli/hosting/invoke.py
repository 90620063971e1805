"""`halimede invoke`: one request to an endpoint, and its answer."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from halimede.cli.hosting.client import HostClient, host_options
from halimede.core.media_types import essence

_PART_BYTES = 1 << 20

_TEXTS = ("application/json", "application/jsonlines", "application/x-ndjson", "application/xml")


@click.command("invoke")
@click.argument("endpoint")
@click.option("--data", help="The body, as text.")
@click.option(
    "--body",
    type=click.Path(allow_dash=True, dir_okay=False),
    help="File with the body; - for standard input.",
)
@click.option(
    "--content-type", default="application/json", show_default=True, help="Content type of the body."
)
@click.option("--accept", help="Accepted content type of the answer.")
@click.option("--target-model", help="Model of a multi-model endpoint.")
@click.option("--target-variant", help="Variant to invoke.")
@click.option("--target-container", help="Container of a multi-container endpoint in mode Direct.")
@click.option(
    "--session", help="Id of the session; NEW_SESSION opens one and writes its id to standard error."
)
@click.option(
    "--stream", is_flag=True, help="Print the answer as it arrives (InvokeEndpointWithResponseStream)."
)
@click.option(
    "--async",
    "asynchronous",
    is_flag=True,
    help="Queue the request at an asynchronous endpoint, and print the location of its result.",
)
@click.option("--input", "source", help="Object with the body, s3://BUCKET/KEY; with --async.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write the answer's body to.",
)
@host_options
def command(
    endpoint: str,
    data: str | None,
    body: str | None,
    content_type: str,
    accept: str | None,
    target_model: str | None,
    target_variant: str | None,
    target_container: str | None,
    session: str | None,
    stream: bool,
    asynchronous: bool,
    source: str | None,
    output: Path | None,
    endpoint_url: str,
    region: str,
) -> int:
    """Send one request to ENDPOINT and print the answer's body."""
    if sum(each is not None for each in (data, body, source)) != 1:
        ways = "--data, --body and --input" if asynchronous else "--data and --body"
        raise click.UsageError(f"say the body with one of {ways}")
    if asynchronous:
        refused = {"--stream": stream, "--target-model": target_model, "--target-variant": target_variant}
        for option, value in [*refused.items(), ("--output", output)]:
            if value:
                raise click.UsageError(f"{option} has no place beside --async")
        enqueued: dict[str, Any] = {"EndpointName": endpoint, "ContentType": content_type}
        enqueued |= {"Body": _body(data, body)} if source is None else {"InputLocation": source}
        if accept is not None:
            enqueued["Accept"] = accept
        return _enqueue(HostClient(endpoint_url, region), enqueued)
    if source is not None:
        raise click.UsageError("--input is for requests to asynchronous endpoints; add --async")
    parameters: dict[str, Any] = {
        "EndpointName": endpoint,
        "ContentType": content_type,
        "Body": _body(data, body),
    }
    optional = {
        "Accept": accept,
        "TargetModel": target_model,
        "TargetVariant": target_variant,
        "TargetContainerHostname": target_container,
        "SessionId": session,
    }
    parameters |= {name: value for name, value in optional.items() if value is not None}
    if stream and target_model is not None:
        raise click.UsageError(
            "--stream: multi-model endpoints give no response streams; leave --target-model out"
        )
    host = HostClient(endpoint_url, region)
    operation = "invoke_endpoint_with_response_stream" if stream else "invoke_endpoint"
    response = host.call("sagemaker-runtime", operation, **parameters)
    answer = response["Body"]
    for what, member in (("opened", "NewSessionId"), ("closed", "ClosedSessionId")):
        if member in response:
            click.echo(f"{what} session {response[member]}", err=True)
    to_end = output is None and (sys.stdout.isatty() or _is_text(response.get("ContentType", "")))
    last = b""
    try:
        with click.open_file("-" if output is None else str(output), "wb") as file:
            for part in _parts(answer) if stream else answer.iter_chunks(_PART_BYTES):
                file.write(part)
                file.flush()
                last = part or last
            if to_end and not last.endswith(b"\n"):
                file.write(b"\n")
                file.flush()
    except OSError as error:
        where = "standard output" if output is None else f"'{output}'"
        raise click.ClickException(f"--output: cannot write {where}: {error.strerror}") from None
    return 0


def _enqueue(host: HostClient, parameters: Mapping[str, Any]) -> int:
    """Put a request into a queue, and print where its result will be."""
    answer = host.call("sagemaker-runtime", "invoke_endpoint_async", **parameters)
    click.echo(f"inference id  {answer['InferenceId']}")
    click.echo(f"result        {answer['OutputLocation']}")
    if "FailureLocation" in answer:
        click.echo(f"or an error   {answer['FailureLocation']}")
    return 0


def _is_text(content_type: str) -> bool:
    """Whether a body is text, so that a line end after it changes nothing."""
    kind = essence(content_type)
    return kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+json", "+xml"))


def _parts(events: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """The body of a response stream, as it comes."""
    from botocore.exceptions import EventStreamError

    try:
        for event in events:
            yield event["PayloadPart"]["Bytes"]
    except EventStreamError as error:
        raise click.ClickException(str(error)) from None


def _body(data: str | None, body: str | None) -> bytes:
    if data is not None:
        return data.encode()
    assert body is not None
    try:
        with click.open_file(body, "rb") as file:
            content: bytes = file.read()
            return content
    except OSError as error:
        raise click.UsageError(f"--body: cannot read '{body}': {error.strerror}") from None
