"""Files of keys, and what keys may do."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.access.keys import Key, KeysError, read_keys
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Caller
from tests.hosting.api.serving import ACCESS_KEY, ACCOUNT, SECRET, VARIANT, api_host
from tests.hosting.instances import fake_instance


def read(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    return read_keys(path)


def test_a_file(tmp_path: Path) -> None:
    text = """
    [keys.AKID]
    secret = "ü/+"
    account = "123456789012"
    actions = ["sagemaker:Describe*"]
    endpoints = ["prod-*"]
    target_models = ["team-a/*"]

    [keys."all of it"]
    secret = "s"
    """
    keys = read(tmp_path, text)
    assert keys["AKID"] == Key(
        "AKID", "ü/+", "123456789012", ("sagemaker:Describe*",), ("prod-*",), ("team-a/*",)
    )
    assert keys["all of it"] == Key("all of it", "s", "000000000000", ("*",), ("*",), ("*",))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", r"has no table \[keys.ID\]"),
        ("keys = 1", r"has no table \[keys.ID\]"),
        ("[keys]", r"has no table \[keys.ID\]"),
        ("[keys", "cannot read the keys file"),
        ("[keys]\nA = 1", r"\[keys.A\]: expected a table"),
        ("[keys.A]", "'secret' must be a text that is not empty"),
        ("[keys.A]\nsecret = ''", "'secret' must be a text that is not empty"),
        ("[keys.A]\nsecret = 1", "'secret' must be a text that is not empty"),
        (
            "[keys.A]\nsecret = 's'\nacount = '1'",
            "unknown field 'acount'; there are secret, account, actions",
        ),
        ("[keys.A]\nsecret = 's'\naccount = '1'", "'account' must be a text of twelve digits, got '1'"),
        ("[keys.A]\nsecret = 's'\naccount = 123456789012", "'account' must be a text of twelve digits"),
        ("[keys.A]\nsecret = 's'\naccount = '١٢٣٤٥٦٧٨٩٠١٢'", "'account' must be a text of twelve digits"),
        ("[keys.A]\nsecret = 's'\nactions = 'x'", "'actions' must be a list of texts, got 'x'"),
        ("[keys.A]\nsecret = 's'\nendpoints = [1]", r"'endpoints' must be a list of texts, got \[1\]"),
    ],
)
def test_files_that_say_something_else(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(KeysError, match=problem) as error:
        read(tmp_path, text)
    assert str(tmp_path / "keys.toml") in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="cannot read the keys file"):
        read_keys(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(KeysError, match="cannot read the keys file"):
        read_keys(tmp_path / "binary")


def test_a_refusal_says_what_the_key_may_do() -> None:
    key = Key("A", "s", actions=("sagemaker:Describe*", "sts:*"))
    key.check("sts:GetCallerIdentity")
    with pytest.raises(ApiError) as error:
        key.check("sagemaker:CreateModel")
    assert (error.value.code, error.value.status) == ("AccessDeniedException", 403)
    assert error.value.message == (
        "access key A is not authorized to perform: sagemaker:CreateModel; it may: sagemaker:Describe*, sts:*"
    )


def test_endpoints_do_not_tell_capitals() -> None:
    Key("A", "s", endpoints=("Prod-*",)).check("a", "pROD-x")
    with pytest.raises(ApiError, match="on endpoint other"):
        Key("A", "s", endpoints=("Prod-*",)).check("a", "Other")


ARN = "arn:aws:sagemaker:eu-west-1:123456789012"
PROD = [{"Name": "EndpointName", "Value": "prod-1"}]
TEST = [{"Name": "EndpointName", "Value": "test-1"}]
GROUP = "/aws/sagemaker/Endpoints/"
CONFIG = {"EndpointConfigName": "c", "ProductionVariants": [VARIANT]}


@pytest.mark.parametrize(
    ("actions", "service", "call", "allowed"),
    [
        (("*",), "sagemaker", lambda c: c.describe_endpoint(EndpointName="prod-1"), True),
        (("*",), "sagemaker", lambda c: c.describe_endpoint(EndpointName="test-1"), False),
        (("sagemaker:*",), "sagemaker", lambda c: c.describe_endpoint(EndpointName="prod-1"), True),
        (("sagemaker:Describe*",), "sagemaker", lambda c: c.describe_endpoint(EndpointName="prod-1"), True),
        (("sagemaker:Create*",), "sagemaker", lambda c: c.describe_endpoint(EndpointName="prod-1"), False),
        (("sagemaker:create*",), "sagemaker", lambda c: c.create_endpoint_config(**CONFIG), False),
        (
            ("sagemaker:CreateEndpointConfig",),
            "sagemaker",
            lambda c: c.create_endpoint_config(**CONFIG),
            True,
        ),
        (("sagemaker:CreateEndpoint",), "sagemaker", lambda c: c.create_endpoint_config(**CONFIG), False),
        (("sagemaker:ListEndpoints",), "sagemaker", lambda c: c.list_endpoints(), True),
        (("*",), "sagemaker", lambda c: c.list_tags(ResourceArn=f"{ARN}:endpoint/prod-1"), True),
        (("*",), "sagemaker", lambda c: c.list_tags(ResourceArn=f"{ARN}:endpoint/test-1"), False),
        (("*",), "sagemaker", lambda c: c.list_tags(ResourceArn=f"{ARN}:model/test-1"), True),
        (
            ("logs:*",),
            "logs",
            lambda c: c.get_log_events(logGroupName=f"{GROUP}prod-1", logStreamName="s"),
            True,
        ),
        (
            ("logs:*",),
            "logs",
            lambda c: c.get_log_events(logGroupName=f"{GROUP}test-1", logStreamName="s"),
            False,
        ),
        (("sagemaker:*",), "sts", lambda c: c.get_caller_identity(), True),
        ((), "sts", lambda c: c.get_caller_identity(), True),
        (("sts:GetCallerIdentity",), "sts", lambda c: c.get_caller_identity(), True),
        (("cloudwatch:ListMetrics",), "cloudwatch", lambda c: c.list_metrics(Dimensions=PROD), True),
        (("cloudwatch:ListMetrics",), "cloudwatch", lambda c: c.list_metrics(Dimensions=TEST), False),
        (("monitoring:*",), "cloudwatch", lambda c: c.list_metrics(), False),
    ],
)
def test_what_keys_may_do(
    actions: tuple[str, ...], service: str, call: Callable[[Any], Any], allowed: bool
) -> None:
    keys = {ACCESS_KEY: Key(ACCESS_KEY, SECRET, ACCOUNT, actions, endpoints=("PROD-*",))}
    with api_host(keys) as host:
        if allowed:
            call(host.client(service))
            return
        with pytest.raises(ClientError) as error:
            call(host.client(service))
        assert error.value.response["Error"]["Code"] == "AccessDeniedException"
        assert not host.calls


@pytest.mark.parametrize(("endpoint", "allowed"), [("prod-1", True), ("test-1", False)])
def test_what_is_about_an_endpoint_without_naming_it(endpoint: str, allowed: bool) -> None:
    keys = {ACCESS_KEY: Key(ACCESS_KEY, SECRET, ACCOUNT, endpoints=("prod-*",))}
    asked = []

    async def delete(request: Mapping[str, Any], _: Caller) -> Mapping[str, Any]:
        asked.append(request["Name"])
        return {"InferenceExperimentArn": "arn:aws:sagemaker:us-east-1:000000000000:inference-experiment/x"}

    operations = {"DeleteInferenceExperiment": delete}
    with api_host(
        keys, operations=operations, about=lambda name, *_: (endpoint,) * ("Inference" in name)
    ) as host:
        client = host.client("sagemaker")
        if allowed:
            client.delete_inference_experiment(Name="x")
        else:
            with pytest.raises(ClientError, match="DeleteInferenceExperiment on endpoint test-1"):
                client.delete_inference_experiment(Name="x")
        assert asked == ["x"] * allowed


@pytest.mark.parametrize(
    ("actions", "endpoint", "model", "streamed", "denied"),
    [
        (("sagemaker:InvokeEndpoint",), "prod-1", None, False, ""),
        (("sagemaker:InvokeEndpoint",), "prod-1", None, True, "sagemaker:InvokeEndpointWithResponseStream"),
        (("sagemaker:Invoke*",), "prod-1", None, True, ""),
        (("sagemaker:Describe*",), "prod-1", None, False, "sagemaker:InvokeEndpoint"),
        (("*",), "test-1", None, False, "on endpoint test-1"),
        (("*",), "prod-1", "b/x.tar.gz", False, "of target model b/x.tar.gz"),
    ],
)
def test_what_keys_may_invoke(
    actions: tuple[str, ...], endpoint: str, model: str | None, streamed: bool, denied: str
) -> None:
    keys = {ACCESS_KEY: Key(ACCESS_KEY, SECRET, ACCOUNT, actions, ("prod-*",), ("a/*",))}
    with fake_instance() as instance, api_host(keys) as host:
        for name in ("prod-1", "test-1"):
            host.publish(name, instance.port)
        client = host.client("sagemaker-runtime")
        arguments = {"EndpointName": endpoint, "Body": b"x", **({"TargetModel": model} if model else {})}
        invoke = client.invoke_endpoint_with_response_stream if streamed else client.invoke_endpoint
        if not denied:
            answer = invoke(**arguments)
            body = (
                b"".join(e["PayloadPart"]["Bytes"] for e in answer["Body"])
                if streamed
                else answer["Body"].read()
            )
            assert body == b"x"
            return
        with pytest.raises(ClientError) as error:
            invoke(**arguments)
        assert error.value.response["Error"]["Code"] == "AccessDeniedException"
        assert denied in error.value.response["Error"]["Message"]
        assert not instance.seen


def test_a_name_written_another_way_is_the_same_endpoint() -> None:
    keys = {ACCESS_KEY: Key(ACCESS_KEY, SECRET, ACCOUNT, endpoints=("[!p]*",))}
    with fake_instance() as instance, api_host(keys) as host:
        host.publish("prod", instance.port)

        def rewrite(request: Any, **_: Any) -> None:
            request.url = request.url.replace("/prod/", "/%70rod/")

        client = host.client("sagemaker-runtime")
        client.meta.events.register_first("before-sign.sagemaker-runtime", rewrite)
        with pytest.raises(ClientError, match="AccessDenied"):
            client.invoke_endpoint(EndpointName="prod", Body=b"x")
        assert not instance.seen
