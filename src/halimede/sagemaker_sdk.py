"""AWS's SDKs and a host: what the SDKs would ask Amazon for by its address goes to AWS_ENDPOINT_URL too.

boto3 honours AWS_ENDPOINT_URL. The SageMaker SDKs are made of boto3, but ask for the caller's account and role at
``https://sts.REGION.amazonaws.com``, whatever the variable says. After

    from halimede.sagemaker_sdk import use_host

    use_host()

every session of boto3 speaks to the host, without a network, and so do `sagemaker.Session()`,
`sagemaker.Session(boto_session=boto3.Session())`, `default_bucket()` and `get_execution_role()`. That is so for the
SageMaker Python SDK (``sagemaker``) and for ``sagemaker-core``.
"""

import os
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.session import Session

_VARIABLE = "AWS_ENDPOINT_URL"
_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")

_create_client = Session.create_client


def use_host() -> boto3.Session:
    """Let all sessions of boto3 speak to the host, those that exist included, and give the default one.

    Clients for which an address of Amazon's is named go to the host. Any other address that is named stays.

    Raises:
        RuntimeError: AWS_ENDPOINT_URL does not say where the host is.
    """
    if not os.environ.get(_VARIABLE):
        msg = f"{_VARIABLE} is not set; evaluate what `halimede host --print-env` prints"
        raise RuntimeError(msg)
    # all clients of boto3 come from here, however their session was imported, made or derived
    Session.create_client = _create_redirected_client
    if boto3.DEFAULT_SESSION is None:
        boto3.setup_default_session()
    return boto3.DEFAULT_SESSION


@wraps(_create_client)
def _create_redirected_client(
    session: Session, *arguments: Any, endpoint_url: str | None = None, **options: Any
) -> Any:
    host = urlsplit(endpoint_url or "").hostname or ""
    named = None if host.endswith(_AMAZON) else endpoint_url
    return _create_client(session, *arguments, endpoint_url=named, **options)
