"""Parameters of the runtime, which are headers."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.access.keys import Key
from tests.hosting.api.serving import ACCESS_KEY, SECRET, ApiHost, api_host
from tests.hosting.instances import FakeInstance

PLAIN = {"EndpointName": "one", "Body": b""}


@pytest.fixture(params=[False, True], ids=["anybody", "verified"])
def host(request: pytest.FixtureRequest) -> Any:
    keys = {ACCESS_KEY: Key(ACCESS_KEY, SECRET)} if request.param else None
    instance = FakeInstance()
    try:
        with api_host(keys) as running:
            running.publish("one", instance.port, "000000000000")
            yield running
    finally:
        instance.close()


def refusal(host: ApiHost, operation: str, **parameters: str) -> str:
    with pytest.raises(ClientError) as caught:
        getattr(host.client("sagemaker-runtime"), operation)(**{**PLAIN, **parameters})
    response = caught.value.response
    assert (response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]) == (
        "ValidationError",
        400,
    )
    return str(response["Error"]["Message"])


@pytest.mark.parametrize("operation", ["invoke_endpoint", "invoke_endpoint_with_response_stream"])
@pytest.mark.parametrize(
    ("parameter", "value", "constraint"),
    [
        ("CustomAttributes", "x" * 1025, "length less than or equal to 1024"),
        ("InferenceId", "x" * 65, "length less than or equal to 64"),
        ("ContentType", "x" * 1025, "length less than or equal to 1024"),
        ("Accept", "x" * 1025, "length less than or equal to 1024"),
        ("TargetVariant", "A_B", "satisfy regular expression pattern"),
        ("SessionId", "x" * 257, "length less than or equal to 256"),
        ("EndpointName", "x" * 64, "length less than or equal to 63"),
    ],
)
def test_a_parameter_that_breaks_the_model_is_named(
    host: ApiHost, operation: str, parameter: str, value: str, constraint: str
) -> None:
    message = refusal(host, operation, **{parameter: value})
    assert message.startswith("1 validation error detected: Value")
    assert f"at '{parameter[0].lower()}{parameter[1:]}' failed to satisfy constraint" in message
    assert constraint in message


def test_custom_attributes_which_may_be_secret_are_not_repeated(host: ApiHost) -> None:
    assert "secret" not in refusal(host, "invoke_endpoint", CustomAttributes="secret" * 200)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("InferenceComponentName", "component"),
        ("EnableExplanations", "`true`"),
    ],
)
def test_what_the_host_does_not_have_is_refused_by_name(host: ApiHost, parameter: str, value: str) -> None:
    message = refusal(host, "invoke_endpoint", **{parameter: value})
    assert message.endswith(f"not available in this version; leave {parameter} out")


def test_parameters_within_their_bounds_reach_the_instance(host: ApiHost) -> None:
    parameters = {"CustomAttributes": "x" * 1024, "InferenceId": "x" * 64, "SessionId": "NEW_SESSION"}
    answer = host.client("sagemaker-runtime").invoke_endpoint(**PLAIN, **parameters)
    assert answer["Body"].read() == b""
