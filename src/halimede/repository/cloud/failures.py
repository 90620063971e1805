"""Why a bucket does not give what it is asked for, in a line, and what to do."""

import re

from halimede.core.errors import UnavailableError
from halimede.repository.cloud.locations import Location, credentials_advice

_STATUS = re.compile(r"non-2xx status code: (\d{3})[^:]*")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>(.*?)</Message>", re.DOTALL)
_REQUEST = re.compile(r"Error performing ([A-Z]+ \S+) in .* - (.*)", re.DOTALL)
_CAUSE = re.compile(r'message: "([^"]+)"')
_LONGEST = 300
_INVALID_KEY = "object with invalid path"
"""What obstore says of a key that has empty parts, or parts such as '..'."""

_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_REFUSED = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")
"""Refusals whose status is that of a malformed request."""

_ACCOUNT_SERVERS = (
    "169.254.169.254",
    "metadata.google.internal",
    "oauth2.googleapis.com",
    "login.microsoftonline",
)
"""Where obstore asks for the machine's account, if the environment has no credentials."""


class BucketError(UnavailableError):
    """A bucket does not give what it is asked for; the text names bucket and key, and what to do."""


class AwayError(BucketError):
    """A bucket gives no proper answer, or refuses one."""


class ReplacedError(BucketError):
    """An object was replaced or removed after it was listed."""


def is_final(error: Exception) -> bool:
    """Whether the same request would fail again."""
    return isinstance(error, FileNotFoundError) or _status(error) in (400, 401, 403, 404, 412)


def _is_replaced(error: Exception) -> bool:
    """Whether there is no such object any more, or another one."""
    return isinstance(error, FileNotFoundError) or _status(error) in (404, 412, 416)


def failure(location: Location, key: str, doing: str, error: Exception) -> BucketError:
    """What to tell of an error.

    Args:
        location: the repository.
        key: the key, or what keys begin with.
        doing: what was tried, as ``read`` or ``list``.
        error: obstore's.
    """
    where = f"cannot {doing} {location.url} (bucket '{location.bucket}', key '{key}')"
    status = _status(error)
    text = reason(error)
    code = _CODE.search(str(error))
    if code is not None and code[1] in _NO_BUCKET:
        return AwayError(f"{where}: there is no such bucket ({text}). Check the URL and the endpoint")
    if status in (401, 403) or (code is not None and code[1] in _REFUSED):
        return AwayError(
            f"{where}: {location.service.title} refuses it ({text}). {credentials_advice(location.service)} "
            "and that they may list the bucket and read its objects"
        )
    if any(server in str(error) for server in _ACCOUNT_SERVERS):
        return AwayError(
            f"{where}: there are no credentials ({text}). {credentials_advice(location.service)}"
        )
    if _is_replaced(error):
        return ReplacedError(f"{where}: it was replaced or removed after it was listed ({text}). Try again")
    if _INVALID_KEY in text:
        return AwayError(f"{where}: a key cannot be the name of a file ({text}); rename the object")
    server = location.endpoint or location.service.title
    return AwayError(f"{where}: {server} gives no proper answer ({text}). Check the endpoint and the network")


def reason(error: Exception) -> str:
    """What obstore says of an error, in a line: the service's own words if there are any."""
    text = str(error)
    status = _STATUS.search(text)
    if status is None:
        said, _, details = text.partition("\n\nDebug source")
        request = _REQUEST.search(said)
        said = said if request is None else f"{request[1]}: {request[2]}"
        cause = _CAUSE.search(details)
        return " ".join(f"{said}{'' if cause is None else f': {cause[1]}'}".split())[:_LONGEST]
    words = [found[1] for pattern in (_CODE, _MESSAGE) if (found := pattern.search(text)) is not None]
    return " ".join(": ".join([status[0].removeprefix("non-2xx status code: "), *words]).split())[:_LONGEST]


def _status(error: Exception) -> int:
    """The HTTP status of an error, 0 if there was none."""
    found = _STATUS.search(str(error))
    return 0 if found is None else int(found[1])
