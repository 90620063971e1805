"""URLs of model repositories in buckets, and what they name.

    s3://BUCKET/PATH    s3://HOST:PORT/BUCKET/PATH    s3://https://HOST:PORT/BUCKET/PATH
    gs://BUCKET/PATH
    as://ACCOUNT/CONTAINER/PATH                       as://https://HOST:PORT/ACCOUNT/CONTAINER/PATH

PATH may be missing. A server that is named without `https://` is spoken to in plain HTTP.
"""

import re
from dataclasses import dataclass
from enum import Enum

from halimede.core.errors import InvalidArgumentError


class Service(Enum):
    """Object storage, by the scheme of its URLs."""

    S3 = "s3"
    GCS = "gs"
    AZURE = "as"

    @property
    def title(self) -> str:
        """What people call it."""
        return {"s3": "S3", "gs": "Google Cloud Storage", "as": "Azure Blob Storage"}[self.value]


_ENDPOINT = re.compile(r"(https?://)?([^/@:]+(?::\d+)?)(?:/|$)")
_CREDENTIALS = re.compile(r"(https?://)?[^/]*@")
_FORMS = {
    Service.S3: "s3://BUCKET/PATH or s3://https://HOST:PORT/BUCKET/PATH",
    Service.GCS: "gs://BUCKET/PATH",
    Service.AZURE: "as://ACCOUNT/CONTAINER/PATH or as://https://HOST:PORT/ACCOUNT/CONTAINER/PATH",
}


@dataclass(frozen=True, slots=True)
class Location:
    """A repository in a bucket.

    Attributes:
        url: how its user writes it, without slashes at the end.
        service: what kind of storage has it.
        endpoint: the server, as ``http://host:port``; "" for the service's own.
        account: Azure's account; "" for others.
        bucket: the bucket, or Azure's container.
        path: what the keys of its objects begin with, without slashes around it; "" for the whole bucket.
    """

    url: str
    service: Service
    endpoint: str
    account: str
    bucket: str
    path: str

    def key(self, *parts: str) -> str:
        """The key of what lies below the repository."""
        return "/".join(part for part in (self.path, *parts) if part)


def is_bucket_url(text: str) -> bool:
    """Whether a text is the URL of a repository in a bucket, rather than a directory."""
    return text.startswith(tuple(f"{service.value}://" for service in Service))


def parse_location(url: str) -> Location:
    """What a URL names.

    Raises:
        InvalidArgumentError: it names no bucket, or has credentials in it.
    """
    scheme, _, rest = url.partition("://")
    service = Service(scheme)
    endpoint = ""
    if _CREDENTIALS.match(rest):
        raise InvalidArgumentError(
            f"the URL of a model repository may not hold credentials; set the environment's, as "
            f"{_VARIABLES[service]}"
        )
    found = _ENDPOINT.match(rest)
    names_server = found is not None and (found[1] or ":" in found[2])
    if service is not Service.GCS and found is not None and names_server:
        endpoint = f"{found[1] or 'http://'}{found[2]}"
        rest = rest[found.end() :]
    parts = [part for part in rest.split("/") if part]
    account = parts.pop(0) if service is Service.AZURE and parts else ""
    if not parts or ":" in parts[0] or any(part in (".", "..") for part in parts):
        raise InvalidArgumentError(f"'{url}' is no URL of a model repository; expected {_FORMS[service]}")
    return Location(url.rstrip("/"), service, endpoint, account, parts[0], "/".join(parts[1:]))


_VARIABLES = {
    Service.S3: "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    Service.GCS: "GOOGLE_APPLICATION_CREDENTIALS",
    Service.AZURE: "AZURE_STORAGE_KEY, or AZURE_STORAGE_AUTH_TYPE",
}


def credentials_advice(service: Service) -> str:
    """What to check if a service refuses what is asked of it."""
    return (
        f"Check the credentials ({_VARIABLES[service]}, or the file that TRITON_CLOUD_CREDENTIAL_PATH names)"
    )
