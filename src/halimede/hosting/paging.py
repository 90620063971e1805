"""Tokens of pages that are nothing but positions."""

import re

from halimede.hosting.errors import ApiError

_TOKEN = re.compile("[0-9]{1,15}")


def begin_of(token: str | None, code: str = "InvalidParameterValue") -> int:
    """Where the page begins that a NextToken stands for.

    Args:
        token: what the request says; None for the first page.
        code: of the error for a token that no answer had.

    Raises:
        ApiError: it is none.
    """
    if token is None:
        return 0
    if not _TOKEN.fullmatch(token):
        raise ApiError(code, f"The specified nextToken is invalid: '{token[:128]}'")
    return int(token)
