"""URLs of objects: ``s3://BUCKET/KEY``, and the addresses over HTTPS by which Amazon's S3 has the same.

    https://BUCKET.s3.REGION.amazonaws.com/KEY
    https://s3.REGION.amazonaws.com/BUCKET/KEY

SageMaker takes both wherever it takes a URL of S3. Here they name the same bucket: the region says nothing.
"""

import re
from typing import Final
from urllib.parse import unquote

_SCHEME: Final = "s3://"
_HTTPS: Final = re.compile(
    r"https://(?:(?P<bucket>[^/?#]+)\.)?s3(?:[.-](?:dualstack\.)?[a-z0-9-]+)?\.amazonaws\.com(?:\.cn)?"
    r"(?:/(?P<path>[^?#]*))?"
)


def s3_url(url: str) -> str:
    """The ``s3://`` form of a URL, with percent-encoded characters decoded; any other URL as it is."""
    found = _HTTPS.fullmatch(url)
    if found is None:
        return url
    bucket, path = found["bucket"], unquote(found["path"] or "")
    return f"{_SCHEME}{bucket}/{path}" if bucket else f"{_SCHEME}{path}"


def bucket_and_key(url: str) -> tuple[str, str]:
    """The parts of a URL; what it lacks is "", and so are both of one that is not of S3."""
    known = s3_url(url)
    if not known.startswith(_SCHEME):
        return "", ""
    bucket, _, key = known.removeprefix(_SCHEME).partition("/")
    return bucket, key
