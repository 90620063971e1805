"""Lists: filtered, sorted, and given page by page, as SageMaker's List operations do."""

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from halimede.hosting.errors import invalid

_PAGE = 10
"""Entries of a page unless the request says (`MaxResults`)."""

_TIMES = {
    "CreationTimeAfter": ("CreationTime", 1),
    "CreationTimeBefore": ("CreationTime", -1),
    "LastModifiedTimeAfter": ("LastModifiedTime", 1),
    "LastModifiedTimeBefore": ("LastModifiedTime", -1),
}


def page_of(
    entries: Sequence[Mapping[str, Any]],
    request: Mapping[str, Any],
    name: str,
    key: str,
    status: str | None = None,
) -> dict[str, Any]:
    """The page that a List request asks for.

    Args:
        entries: all of them, as summaries.
        request: the request.
        name: the member of a summary that holds its name, such as ``EndpointName``.
        key: the member of the answer that holds the page, such as ``Endpoints``.
        status: the member of a summary that `StatusEquals` is about.

    Raises:
        ApiError: its NextToken is none that was given.
    """
    kept = [entry for entry in entries if _is_wanted(entry, request, name, status)]
    asked = request.get("SortBy", "")
    by = {"Name": name, "Status": status or name}.get(asked, asked)
    if not all(by in entry for entry in kept):
        by = "CreationTime"
    descending = request.get("SortOrder", "Descending").lower().startswith("desc")
    kept.sort(key=lambda entry: _key(entry, by, name), reverse=descending)
    last = _last(request.get("NextToken"))
    if last is not None:
        kept = [entry for entry in kept if (_key(entry, by, name) < last) is descending]
        kept = [entry for entry in kept if _key(entry, by, name) != last]
    size = request.get("MaxResults", _PAGE)
    page: dict[str, Any] = {key: kept[:size]}
    if len(kept) > size:
        token = orjson.dumps(_key(kept[size - 1], by, name))
        page["NextToken"] = base64.urlsafe_b64encode(token).decode()
    return page


def _key(entry: Mapping[str, Any], by: str, name: str) -> tuple[str, str]:
    """What an entry is sorted by; a token holds it, so that a page begins right whatever has gone meanwhile."""
    value = entry[by]
    text = f"{value.timestamp():020.6f}" if isinstance(value, datetime) else str(value)
    return text, str(entry[name])


def _last(token: str | None) -> tuple[str, str] | None:
    """The key of the entry before the page."""
    if token is None:
        return None
    try:
        by, name = orjson.loads(base64.b64decode(token.encode(), b"-_", validate=True))
        return str(by), str(name)
    except (ValueError, TypeError):
        raise invalid(f"NextToken '{token}' is none that an answer had") from None


def _is_wanted(entry: Mapping[str, Any], request: Mapping[str, Any], name: str, status: str | None) -> bool:
    if request.get("NameContains", "").lower() not in entry[name].lower():
        return False
    if status is not None and request.get("StatusEquals", entry[status]) != entry[status]:
        return False
    for parameter, (member, sign) in _TIMES.items():
        limit: datetime | None = request.get(parameter)
        if limit is not None and (entry[member] - limit).total_seconds() * sign < 0:
            return False
    return True
