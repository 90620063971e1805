"""boto3 clients of a host, for the commands that look at it, and their errors in one line."""

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

DEFAULT_URL = "http://127.0.0.1:8088"

Command = TypeVar("Command", bound=Callable[..., Any])

_MISREAD = (AttributeError, TypeError, UnicodeDecodeError)
"""What botocore's parsers raise for answers that no service of AWS gives."""

_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SAGEMAKER")


def host_options(command: Command) -> Command:
    """The options that say which host a command speaks to."""
    region = click.option(
        "--region", envvar="AWS_DEFAULT_REGION", default="us-east-1", help="Region of the host."
    )
    url = click.option(
        "--endpoint-url",
        envvar=_ENDPOINT_VARIABLES,
        default=DEFAULT_URL,
        show_default=True,
        help="Address of the host; or set AWS_ENDPOINT_URL.",
    )
    return url(region(command))


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in {"http", "https"}
            and bool(parts.hostname)
            and parts.port != 0
            and text.isprintable()
            and " " not in text
        )
    except ValueError:
        return False


class MissingError(click.ClickException):
    """There is nothing of that name on the host, or no more."""


class HostClient:
    """Speaks to a host; what it answers with an error ends the command with one line.

    Args:
        endpoint_url: where it is.
        region: its region.

    Raises:
        click.UsageError: the URL is none.
    """

    def __init__(self, endpoint_url: str, region: str) -> None:
        if not _is_url(endpoint_url):
            msg = f"--endpoint-url (or AWS_ENDPOINT_URL): '{endpoint_url}' is no URL of a host, such as {DEFAULT_URL}"
            raise click.UsageError(msg)
        self._url = endpoint_url
        self._region = region
        self._session: Any = None
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """A boto3 client of one of its services; another thread takes another `HostClient`."""
        if service not in self._clients:
            self._clients[service] = self._client(service)
        return self._clients[service]

    def _client(self, service: str) -> Any:
        try:
            import boto3
            from botocore.config import Config
        except ModuleNotFoundError as error:
            msg = f'this command needs {error.name}, which is not installed: pip install "halimede[host]"'
            raise click.ClickException(msg) from None
        keys = {}
        if "AWS_ACCESS_KEY_ID" not in os.environ and "AWS_PROFILE" not in os.environ:
            keys = {"aws_access_key_id": "halimede", "aws_secret_access_key": "halimede"}
        config = Config(
            retries={"total_max_attempts": 1},
            connect_timeout=5,
            read_timeout=90,
            s3={"addressing_style": "path"},
        )
        self._session = self._session or boto3.Session()  # it keeps what all services' descriptions share
        return self._session.client(
            service, endpoint_url=self._url, region_name=self._region, config=config, **keys
        )  # fmt: skip

    def call(self, service: str, operation: str, **parameters: Any) -> Any:
        """What an operation answers.

        Raises:
            MissingError: there is nothing of the name that it is asked about.
            click.ClickException: the host refuses it, or is not there, or another server is.
        """
        client = self.client(service)
        from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError
        from botocore.parsers import ResponseParserError

        try:
            answer = getattr(client, operation)(**parameters)
        except ClientError as error:
            self._check_answer(error.response)
            message = error.response["Error"]["Message"]
            kind = MissingError if message.startswith("Could not find") else click.ClickException
            raise kind(message) from None
        except (ResponseParserError, *_MISREAD):
            raise self._no_host("its answer cannot be read") from None
        except EndpointConnectionError:
            msg = f"no host answers at {self._url}; start one with `halimede host`, or set --endpoint-url"
            raise click.ClickException(msg) from None
        except BotoCoreError as error:
            raise click.ClickException(str(error)) from None
        self._check_answer(answer)
        return answer

    def _check_answer(self, answer: Mapping[str, Any]) -> None:
        """Refuse what a server has answered that is no host.

        Raises:
            click.ClickException: it is none.
        """
        metadata = answer["ResponseMetadata"]
        if "x-amzn-requestid" not in metadata["HTTPHeaders"]:
            raise self._no_host(f"it answered with status {metadata['HTTPStatusCode']}")

    def _no_host(self, why: str) -> click.ClickException:
        msg = f"the server at {self._url} is no host of halimede ({why}); start one with `halimede host`, or set "
        return click.ClickException(msg + "--endpoint-url")

    def every(self, service: str, operation: str, key: str, **parameters: Any) -> list[Any]:
        """All entries that an operation lists page by page below `key`."""
        entries: list[Any] = []
        token: dict[str, str] = {}
        while True:
            page = self.call(service, operation, **parameters, **token)
            entries += page[key]
            following = page.get("NextToken") or page.get("nextToken")
            if not following:
                return entries
            token = {"NextToken" if "NextToken" in page else "nextToken": following}
