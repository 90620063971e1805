"""Clients of boto3, closed when the test is over that made them."""

from collections.abc import Mapping
from typing import Any

import boto3
from botocore.config import Config


class Clients:
    """Makes clients, and closes them all."""

    def __init__(self) -> None:
        self._made: list[Any] = []

    def make(self, service: str, url: str, config: Mapping[str, Any] | None = None, **settings: Any) -> Any:
        """A client, which tries once unless its configuration says otherwise.

        Args:
            service: such as ``s3``.
            url: where it is.
            config: what `botocore.config.Config` takes.
            settings: what `boto3.client` takes: a region and a key, of which any will do where none are given.
        """
        values = {
            "endpoint_url": url,
            "region_name": "us-east-1",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
        }
        once = Config(**{"retries": {"total_max_attempts": 1}, **(config or {})})
        client = boto3.client(service, config=once, **(values | settings))
        self._made.append(client)
        return client

    def close(self) -> None:
        """Close them with their connections. The bodies of responses have to be read before."""
        for client in self._made:
            client.close()
        self._made.clear()
