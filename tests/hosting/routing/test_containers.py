"""Variants of several containers, as clients see them: which container is meant, and which one failed."""

import threading
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.routing.settings import InvocationSettings
from halimede.hosting.specs import Container
from tests.hosting.instances import Received, Reply
from tests.hosting.routing.serving import ENDPOINT, Runtime, invoke, one_instance, one_process

FIRST, SECOND = Container("a", hostname="first"), Container("b", hostname="second")
IN_A_ROW: dict[str, Any] = {"container": FIRST, "further": (SECOND,)}
SIDE_BY_SIDE: dict[str, Any] = {**IN_A_ROW, "direct": True}


def error_of(host: Runtime, **more: Any) -> dict[str, Any]:
    """The error with which an invocation is answered."""
    with pytest.raises(ClientError) as caught:
        invoke(host.client(), **more)
    answer: dict[str, Any] = caught.value.response
    return answer


def refusal(host: Runtime, **more: Any) -> str:
    """The text with which an invocation is refused."""
    error = error_of(host, **more)
    assert (error["Error"]["Code"], error["ResponseMetadata"]["HTTPStatusCode"]) == ("ValidationError", 400)
    text: str = error["Error"]["Message"]
    return text


def test_a_container_is_called_by_its_name() -> None:
    with one_instance(**SIDE_BY_SIDE) as (host, instance):
        assert invoke(host.client(), TargetContainerHostname="second")["Body"].read() == b"body"
        name = "x-amzn-sagemaker-target-container-hostname"
        assert [got.headers[name] for got in instance.seen] == ["second"]


def test_containers_side_by_side_have_to_be_named() -> None:
    with one_instance(**SIDE_BY_SIDE) as (host, instance):
        assert refusal(host) == (
            f"Endpoint {ENDPOINT} is a multi-container endpoint with direct invocation; say with "
            "TargetContainerHostname which container is meant. Its containers are first, second."
        )
        assert not instance.seen


def test_a_container_that_is_not_there_cannot_be_called() -> None:
    with one_instance(**SIDE_BY_SIDE) as (host, instance):
        assert refusal(host, TargetContainerHostname="third") == (
            f"Container third not found for endpoint {ENDPOINT}. Its containers are first, second."
        )
        assert not instance.seen


@pytest.mark.parametrize("spec", [{}, IN_A_ROW], ids=["one", "in a row"])
def test_containers_that_are_not_side_by_side_are_not_named(spec: dict[str, Any]) -> None:
    with one_instance(**spec) as (host, instance):
        assert refusal(host, TargetContainerHostname="first") == (
            f"Endpoint {ENDPOINT} is not a multi-container endpoint with direct invocation and does not support target "
            "container hostname header first."
        )
        assert not instance.seen


def test_streams_of_one_of_several_containers() -> None:
    with one_instance(**SIDE_BY_SIDE) as (host, _):
        client = host.client()
        answer = client.invoke_endpoint_with_response_stream(
            EndpointName=ENDPOINT, Body=b"body", TargetContainerHostname="first"
        )
        parts = [event["PayloadPart"]["Bytes"] for event in answer["Body"]]
        assert b"".join(parts) == b"body"


@one_process
def test_an_error_names_the_container_that_made_it() -> None:
    with one_instance(**IN_A_ROW) as (host, instance):
        instance.invoke = lambda _: Reply(400, b"no such column", {"X-Halimede-Container": "second"})
        error = error_of(host)
        assert error["Error"]["Code"] == "ModelError"
        assert error["OriginalStatusCode"] == 400
        assert error["OriginalMessage"] == "no such column"
        assert error["Error"]["Message"].startswith(
            'Received client error (400) from second with message "no such column". See the log group'
        )


@one_process
def test_a_container_without_an_answer_is_named() -> None:
    headers = {"X-Halimede-Container": "first", "X-Halimede-Failure": "it hung up"}
    with one_instance(**IN_A_ROW) as (host, instance):
        instance.invoke = lambda _: Reply(502, b"", headers)
        error = error_of(host)
        assert error["Error"]["Code"] == "ModelError"
        assert error["OriginalStatusCode"] == 0
        assert error["Error"]["Message"].startswith("No response from container first: it hung up. See the")


@one_process
def test_what_only_the_host_may_say_is_not_believed_of_a_single_container() -> None:
    headers = {"X-Halimede-Container": "other", "X-Halimede-Failure": "none"}
    with one_instance() as (host, instance):
        instance.invoke = lambda _: Reply(502, b"text", headers)
        error = error_of(host)
        assert error["Error"]["Message"].startswith(
            'Received server error (502) from primary with message "text"'
        )
        instance.invoke = lambda _: Reply(200, b"text", headers)
        received = invoke(host.client())["ResponseMetadata"]["HTTPHeaders"]
        assert not [name for name in received if name.startswith("x-halimede")]


@one_process
@pytest.mark.parametrize(
    ("spec", "more", "name"),
    [
        (IN_A_ROW, {}, "first, second"),
        (SIDE_BY_SIDE, {"TargetContainerHostname": "second"}, "second"),
        ({}, {}, "primary"),
    ],
    ids=["in a row", "side by side", "one"],
)
def test_who_takes_too_long(spec: dict[str, Any], more: dict[str, str], name: str) -> None:
    gate = threading.Event()

    def hangs(_: Received) -> Reply:
        gate.wait(60)
        return Reply()

    with one_instance(InvocationSettings(timeout_s=0.1), **spec) as (host, instance):
        instance.invoke = hangs
        text = error_of(host, **more)["Error"]["Message"]
        gate.set()
        assert text.startswith(
            f"Your invocation timed out while waiting for a response from container {name} after 0.1 seconds."
        )
