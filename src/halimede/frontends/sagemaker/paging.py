"""The list of models, whole or page by page."""

import binascii
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import parse_qs

from halimede.core.errors import InvalidArgumentError
from halimede.engine.lifecycle.hosted_models import HostedModel

MAX_PAGE: Final = 100
"""The most models that a client may want on a page."""


def page(models: Iterable[HostedModel], query: str) -> dict[str, Any]:
    """The models that a query asks for, as the contract lists them.

    They are in the order of their keys, so that a model which is there all the time is on exactly one page, whatever
    comes and goes in between.

    Args:
        models: the loaded models.
        query: the query of the request. ``limit`` is the size of a page, without it all that follow are on it;
            ``next_page_token`` is the ``nextPageToken`` of the page before.

    Raises:
        InvalidArgumentError: one of those is not what it should be.
    """
    members = parse_qs(query, keep_blank_values=True)
    limit = _limit(members["limit"][-1]) if "limit" in members else None
    rest = sorted(models, key=lambda model: model.key)
    if "next_page_token" in members:
        last = _last_key(members["next_page_token"][-1])
        rest = [model for model in rest if model.key > last]
    shown = rest[:limit]
    document: dict[str, Any] = {"models": [describe(model) for model in shown]}
    if len(shown) < len(rest):
        document["nextPageToken"] = urlsafe_b64encode(shown[-1].key.encode()).decode().rstrip("=")
    return document


def describe(model: HostedModel) -> dict[str, str]:
    """One model as the contract tells of it."""
    return {"modelName": model.key, "modelUrl": model.url}


def _limit(text: str) -> int:
    digits = text.lstrip("0")
    if (
        not (text.isascii() and digits.isdigit())
        or len(digits) > len(str(MAX_PAGE))
        or int(digits) > MAX_PAGE
    ):
        raise InvalidArgumentError(f"limit '{text[:64]}' is not a whole number from 1 to {MAX_PAGE}")
    return int(digits)


def _last_key(token: str) -> str:
    """The key of the last model on the page before."""
    try:
        return b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        msg = f"next_page_token '{token[:64]}' is not the nextPageToken of an earlier page"
        raise InvalidArgumentError(msg) from None
