"""What SDKs ask of IAM before they deploy."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.api.iam import iam_service
from tests.hosting.services import serve_services
from tests.support.clients import Clients
from tests.support.loops import LoopThread


@pytest.fixture(scope="module")
def iam() -> Iterator[Any]:
    clients = Clients()
    with LoopThread() as loop, serve_services(loop, [iam_service()]) as port:
        yield clients.make("iam", f"http://127.0.0.1:{port}")
        clients.close()


def test_a_role_is_one_that_sagemaker_may_assume(iam: Any) -> None:
    role = iam.get_role(RoleName="analyst")["Role"]
    assert role["Arn"] == "arn:aws:iam::000000000000:role/analyst"
    assert (role["RoleName"], role["Path"]) == ("analyst", "/")
    assert role["CreateDate"] == datetime(2026, 1, 1, tzinfo=UTC)
    (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert (statement["Effect"], statement["Action"]) == ("Allow", "sts:AssumeRole")


def test_a_role_is_allowed_what_hosting_needs(iam: Any) -> None:
    role = iam.get_role(RoleName="analyst")["Role"]["Arn"]
    pages = iam.get_paginator("simulate_principal_policy").paginate(
        PolicySourceArn=role, ActionNames=["ecr:GetAuthorizationToken", "logs:CreateLogStream"]
    )
    results = [result for page in pages for result in page["EvaluationResults"]]
    assert [(each["EvalActionName"], each["EvalDecision"]) for each in results] == [
        ("ecr:GetAuthorizationToken", "allowed"),
        ("logs:CreateLogStream", "allowed"),
    ]


def test_every_resource_has_its_result(iam: Any) -> None:
    answer = iam.simulate_principal_policy(
        PolicySourceArn="arn:aws:iam::000000000000:role/analyst",
        ActionNames=["s3:GetObject"],
        ResourceArns=["arn:aws:s3:::a/*", "arn:aws:s3:::b/*"],
    )
    assert [each["EvalResourceName"] for each in answer["EvaluationResults"]] == [
        "arn:aws:s3:::a/*",
        "arn:aws:s3:::b/*",
    ]


def test_roles_cannot_be_made(iam: Any) -> None:
    with pytest.raises(ClientError, match="CreateRole is not available in this version: the host has no IAM"):
        iam.create_role(RoleName="analyst", AssumeRolePolicyDocument="{}")
