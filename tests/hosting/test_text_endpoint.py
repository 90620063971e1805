"""A language model on a real host, as boto3 sees it: tokens that come one by one, clients that go, and what fails."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EventStreamError

from tests.frontends.openai.models import write_repository
from tests.hosting.containers.programs import packed
from tests.hosting.containers.test_real_host import IMAGE, ROLE
from tests.support.host import HostProcess, start_host
from tests.support.waiting import wait_until

NAME = "writer"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    directory = tmp_path_factory.mktemp("texts")
    write_repository(directory / "models")
    with start_host(directory / "host", "--metric-period=1", "--describe-hold=0") as running:
        s3, sagemaker = running.client("s3"), running.client("sagemaker")
        s3.create_bucket(Bucket="models")
        s3.put_object(
            Bucket="models", Key="writer.tar.gz", Body=packed(files_of(directory / "models" / NAME))
        )
        container = {"Image": IMAGE, "ModelDataUrl": "s3://models/writer.tar.gz"}
        sagemaker.create_model(ModelName=NAME, ExecutionRoleArn=ROLE, PrimaryContainer=container)
        variant = {"VariantName": "A", "ModelName": NAME, "InstanceType": "ml.local.cpu"}
        sagemaker.create_endpoint_config(EndpointConfigName=NAME, ProductionVariants=[variant])
        sagemaker.create_endpoint(EndpointName=NAME, EndpointConfigName=NAME)
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=NAME, WaiterConfig={"Delay": 1})
        yield running


def files_of(model: Path) -> dict[str, str]:
    return {
        str(path.relative_to(model.parent)): path.read_text() for path in model.rglob("*") if path.is_file()
    }


def stream(host: HostProcess, body: Any) -> Any:
    """The answer, whose body is a stream of events."""
    return host.client("sagemaker-runtime").invoke_endpoint_with_response_stream(
        EndpointName=NAME, ContentType="application/json", Body=json.dumps({**body, "stream": True})
    )


def parts(answer: Any) -> Iterator[bytes]:
    for event in answer["Body"]:
        yield event["PayloadPart"]["Bytes"]


def whole(answer: Any) -> str:
    with closing(answer["Body"]):
        return b"".join(parts(answer)).decode()


def written(host: HostProcess) -> str:
    """What the instances have written."""
    logs, group = host.client("logs"), f"/aws/sagemaker/Endpoints/{NAME}"
    streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix="A/i-")["logStreams"]
    return "\n".join(
        event["message"]
        for each in streams
        for event in logs.get_log_events(
            logGroupName=group, logStreamName=each["logStreamName"], startFromHead=True
        )["events"]
    )


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **more}


def test_a_chat_is_answered(host: HostProcess) -> None:
    answer = host.client("sagemaker-runtime").invoke_endpoint(
        EndpointName=NAME, ContentType="application/json", Body=json.dumps(chat("good day"))
    )
    reply = json.loads(answer["Body"].read())
    assert reply["choices"][0]["message"]["content"] == "user: good day assistant: "
    assert reply["usage"]["prompt_tokens"] == 4


def test_the_events_of_a_chat_come_in_parts(host: HostProcess) -> None:
    answer = stream(host, chat("good day"))
    assert answer["ContentType"].startswith("text/event-stream")
    lines = whole(answer).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert text == "user: good day assistant: "


def test_tokens_come_at_once_and_a_client_that_goes_ends_the_text(host: HostProcess) -> None:
    # this text ends only when it is cancelled, so that whatever comes, comes before the end
    answer = stream(host, {"inputs": "endless gone", "parameters": {"max_new_tokens": 99999}})
    with closing(answer["Body"]):
        received = b""
        for part in parts(answer):
            received += part
            if received.count(b"\n") >= 3:
                break
    first = json.loads(received.split(b"\n")[0])
    assert first["token"]["text"] == "word "
    wait_until(lambda: "cancelled: gone" in written(host), "the end of the text")


def test_errors_before_the_stream_are_errors_of_the_model(host: HostProcess) -> None:
    with pytest.raises(ClientError) as caught:
        stream(host, {"inputs": "fail now"})
    error = caught.value.response
    assert (error["Error"]["Code"], error["OriginalStatusCode"]) == ("ModelError", 503)
    assert json.loads(error["OriginalMessage"]) == {"error": "no room for this prompt"}
    with pytest.raises(ClientError) as caught:
        stream(host, chat("x", temperature=9))
    document = json.loads(caught.value.response["OriginalMessage"])
    assert document["error"]["param"] == "temperature"


def test_errors_in_the_middle_are_events(host: HostProcess) -> None:
    received = whole(stream(host, {"prompt": "fail late"}))
    last = json.loads(received.strip().split("\n\n")[-1].removeprefix("data: "))
    assert last["error"]["message"] == "the model has lost its thread"


def test_streams_under_way_scale_the_endpoint(host: HostProcess) -> None:
    scaling, sagemaker = host.client("application-autoscaling"), host.client("sagemaker")
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/{NAME}/variant/A",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    scaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=2)
    metric = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
    scaling.put_scaling_policy(
        **target,
        PolicyName="streams",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": 1.5,
            "PredefinedMetricSpecification": {"PredefinedMetricType": metric},
            "DisableScaleIn": True,
        },
    )
    with ExitStack() as streams:
        for number in range(3):
            body = {"inputs": f"endless stream-{number}", "parameters": {"max_new_tokens": 99999}}
            answer = stream(host, body)
            streams.callback(answer["Body"].close)
            next(parts(answer))
        wait_until(lambda: instances(sagemaker) == 2, "a second instance")
    scaling.deregister_scalable_target(**target)
    ended = {f"cancelled: stream-{number}" for number in range(3)}
    wait_until(lambda: all(line in written(host) for line in ended), "the end of all streams")


def instances(sagemaker: Any) -> int:
    [variant] = sagemaker.describe_endpoint(EndpointName=NAME)["ProductionVariants"]
    return int(variant["CurrentInstanceCount"])


def test_an_instance_that_ends_breaks_its_streams(host: HostProcess) -> None:
    answer = stream(host, {"inputs": "endless broken", "parameters": {"max_new_tokens": 99999}})
    with closing(answer["Body"]):
        received = parts(answer)
        next(received)
        for process in servers_of(host):
            os.kill(process, signal.SIGKILL)
        with pytest.raises(EventStreamError, match=r"ModelStreamError.*The response stream broke"):
            list(received)


def servers_of(host: HostProcess) -> list[int]:
    """The processes of the endpoint's instances."""
    found = []
    for process in sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        try:
            command = (Path("/proc") / str(process) / "cmdline").read_bytes()
            environment = (Path("/proc") / str(process) / "environ").read_bytes()
        except OSError:
            continue
        if b"sagemaker-serve" in command and f"AWS_ENDPOINT_URL={host.url}".encode() in environment:
            found.append(process)
    assert found
    return found
