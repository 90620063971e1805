"""Credentials from the file that `TRITON_CLOUD_CREDENTIAL_PATH` names: for each service, by the beginning of URLs.

    {"s3": {"": {"key_id": "…", "secret_key": "…", "region": "…", "session_token": "…", "profile": "…"}},
     "gs": {"": "PATH", "gs://bucket": "PATH"},
     "as": {"": {"account_str": "…", "account_key": "…"}}}

Of the entries of a service, that of the longest beginning of the URL counts.
"""

from collections.abc import Mapping
from pathlib import Path

import orjson

from halimede.core.errors import InvalidArgumentError
from halimede.repository.cloud.locations import Location, Service

VARIABLE = "TRITON_CLOUD_CREDENTIAL_PATH"

_FIELDS = {
    Service.S3: ("key_id", "secret_key", "region", "session_token", "profile"),
    Service.GCS: (),
    Service.AZURE: ("account_str", "account_key"),
}


def credentials_for(location: Location, environment: Mapping[str, str]) -> Mapping[str, str]:
    """What the file says of a repository: that of the longest beginning of its URL.

    For Google's storage that is one field, ``path``. Nothing if there is no such file, or it says nothing.

    Raises:
        InvalidArgumentError: the file cannot be read, or is not of that form. The text has no secret in it.
    """
    name = environment.get(VARIABLE, "")
    if not name:
        return {}
    try:
        document = orjson.loads(Path(name).read_bytes())
    except OSError as error:
        raise InvalidArgumentError(f"{VARIABLE}: '{name}' cannot be read ({error.strerror})") from error
    except ValueError:
        raise InvalidArgumentError(f"{VARIABLE}: '{name}' is not JSON") from None
    service = location.service
    entries = document.get(service.value, {}) if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        raise InvalidArgumentError(
            f'{VARIABLE}: \'{name}\' must hold an object like {{"{service.value}": {{"URL PREFIX": …}}}}'
        )
    beginnings = [beginning for beginning in entries if location.url.startswith(beginning)]
    if not beginnings:
        return {}
    beginning = max(beginnings, key=len)
    entry = entries[beginning]
    if service is Service.GCS:
        entry = {"path": entry}
    known = _FIELDS[service] or ("path",)
    if not isinstance(entry, dict) or not all(isinstance(entry.get(field, ""), str) for field in known):
        what = f"an object of texts: {', '.join(known)}" if _FIELDS[service] else "the path of a file"
        raise InvalidArgumentError(
            f"{VARIABLE}: '{name}': the entry '{beginning}' of '{service.value}' must be {what}"
        )
    return {field: entry[field] for field in known if entry.get(field)}
