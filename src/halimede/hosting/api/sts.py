"""STS: who am I?"""

from collections.abc import Mapping
from typing import Any

from halimede.hosting.api.services import Service
from halimede.hosting.identity import Caller

ROLE = "halimede"
"""The name of the role that everybody has."""


def sts_service() -> Service:
    """GetCallerIdentity: an assumed role, so that the SDKs find an execution role in it."""
    return Service("sts", {"GetCallerIdentity": _get_caller_identity})


async def _get_caller_identity(_: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
    session = caller.access_key or "anonymous"
    return {
        "UserId": f"AROAHALIMEDE:{session}",
        "Account": caller.account,
        "Arn": f"arn:aws:sts::{caller.account}:assumed-role/{ROLE}/{session}",
    }
