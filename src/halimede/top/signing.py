"""Signatures of requests to a host (AWS Signature Version 4)."""

import os
from collections.abc import Mapping
from typing import Any

from halimede.bench.errors import BenchError

_SERVICE = "sagemaker"
_ANY = "halimede"
"""The key where the environment says none: hosts that verify no signatures take any."""


class Signer:
    """Signs with the key that the environment or the AWS configuration has.

    Args:
        region: which the signatures are for; it says whose endpoints are shown.

    Attributes:
        has_key: there is one.
    """

    def __init__(self, region: str) -> None:
        self.has_key = "AWS_ACCESS_KEY_ID" in os.environ or "AWS_PROFILE" in os.environ
        self._region = region
        self._credentials: Any = None

    def headers(self, url: str) -> Mapping[str, str]:
        """The headers that sign a GET of `url`.

        Raises:
            BenchError: the key cannot be found, or botocore is missing.
        """
        try:
            from botocore.auth import SigV4Auth
            from botocore.awsrequest import AWSRequest
            from botocore.credentials import Credentials
            from botocore.exceptions import BotoCoreError
            from botocore.session import Session
        except ImportError:
            raise BenchError(
                "Requests are signed by botocore, which is not installed: pip install 'halimede[host]'"
            ) from None
        try:
            if self._credentials is None:
                self._credentials = Session().get_credentials() if self.has_key else Credentials(_ANY, _ANY)
            asked = AWSRequest("GET", url)
            SigV4Auth(self._credentials, _SERVICE, self._region).add_auth(asked)
        except BotoCoreError as error:
            raise BenchError(f"The request to the host cannot be signed: {error}") from None
        return {str(name): str(value) for name, value in asked.headers.items()}
