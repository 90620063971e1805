"""IAM, as far as SDKs ask it before they deploy: which role is this, and may it do what deploying needs?

The host has no list of roles: models may name any, and none is refused anything for its policies.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import orjson

from halimede.hosting.api.services import Service
from halimede.hosting.identity import Caller

_TRUST: Final = quote(
    orjson.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": {"Service": "sagemaker.amazonaws.com"},
                    "Action": "sts:AssumeRole",
                }
            ],
        }
    )
)
"""Who may assume a role, as IAM sends it."""

_CREATED: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Of every role, as nobody creates them."""


def iam_service() -> Service:
    """GetRole and SimulatePrincipalPolicy: all roles exist, and suffice for hosting."""
    return Service(
        "iam",
        {"GetRole": _get_role, "SimulatePrincipalPolicy": _simulate_principal_policy},
        later="the host has no IAM; models may name any role",
    )


async def _get_role(request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
    name = request["RoleName"]
    return {
        "Role": {
            "Path": "/",
            "RoleName": name,
            "RoleId": "AROAHALIMEDE",
            "Arn": f"arn:aws:iam::{caller.account}:role/{name}",
            "CreateDate": _CREATED,
            "AssumeRolePolicyDocument": _TRUST,
        }
    }


async def _simulate_principal_policy(request: Mapping[str, Any], _: Caller) -> Mapping[str, Any]:
    resources = request.get("ResourceArns") or ("*",)
    results = [
        {"EvalActionName": action, "EvalResourceName": resource, "EvalDecision": "allowed"}
        for action in request["ActionNames"]
        for resource in resources
    ]
    return {"EvaluationResults": results, "IsTruncated": False}
