"""STS: who am I? Anybody may ask that, whatever their key may do otherwise."""

from collections.abc import Mapping
from typing import Any

from halimede.hosting.api.services import Service
from halimede.hosting.identity import Caller


def sts_service() -> Service:
    """GetCallerIdentity: an assumed role, so that the SDKs find an execution role in it."""
    return Service("sts", {"GetCallerIdentity": _get_caller_identity})


async def _get_caller_identity(_: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
    session = caller.arn.rpartition("/")[2]
    return {"UserId": f"AROAHALIMEDE:{session}", "Account": caller.account, "Arn": caller.arn}
