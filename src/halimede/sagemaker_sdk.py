"""AWS's SDKs and a host: what the SDKs would ask Amazon for by its address goes to AWS_ENDPOINT_URL too.

boto3 honours AWS_ENDPOINT_URL. The SageMaker SDKs are made of boto3, but ask for the caller's account and role at
``https://sts.REGION.amazonaws.com``, whatever the variable says. After

    from halimede.sagemaker_sdk import use_host

    use_host()

`sagemaker.Session()`, its `default_bucket()` and `get_execution_role()` speak to the host, without a network. That is
so for the SageMaker Python SDK (``sagemaker``) and for ``sagemaker-core``.
"""

import os
from typing import Any
from urllib.parse import urlsplit

import boto3

_VARIABLE = "AWS_ENDPOINT_URL"
_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")


class HostSession(boto3.Session):  # type: ignore[misc]  # boto3 says nothing of its types
    """A boto3 session whose clients speak to the host, even where their makers name an address of Amazon's.

    It takes the arguments of `boto3.Session`.
    """

    def client(self, service_name: str, *arguments: Any, **options: Any) -> Any:
        """A client of a service, as `boto3.Session.client` makes it."""
        return super().client(service_name, *arguments, **_redirected(options))

    def resource(self, service_name: str, *arguments: Any, **options: Any) -> Any:
        """A resource of a service, as `boto3.Session.resource` makes it."""
        return super().resource(service_name, *arguments, **_redirected(options))


def use_host() -> HostSession:
    """Make boto3's default session one that speaks to the host, and give it, for SDKs that are given a session.

    Raises:
        RuntimeError: AWS_ENDPOINT_URL does not say where the host is.
    """
    if not os.environ.get(_VARIABLE):
        msg = f"{_VARIABLE} is not set; evaluate what `halimede host --print-env` prints"
        raise RuntimeError(msg)
    session = boto3.DEFAULT_SESSION = HostSession()
    return session


def _redirected(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a client, without an endpoint that is Amazon's."""
    host = urlsplit(options.get("endpoint_url") or "").hostname or ""
    return {**options, "endpoint_url": None} if host.endswith(_AMAZON) else options
