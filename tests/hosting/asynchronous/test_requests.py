"""Requests are accepted, run, and answered with objects."""

import json
import threading
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.access.keys import Key
from halimede.hosting.routing.table import FleetRoute
from halimede.hosting.specs import AsyncSpec
from tests.hosting.asynchronous.serving import ENDPOINT, ERROR, SUCCESS, async_host, variant
from tests.hosting.instances import FakeInstance, Received, Reply, fake_instance
from tests.support.waiting import wait_until


def test_result_of_an_input_in_a_bucket_is_an_object(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        host.publish_route(instance)
        source = host.put("in/1.csv", b"1,2,3", "text/csv")
        answer = host.invoke(InputLocation=source, Accept="text/csv", CustomAttributes="trace=7")
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 202
        assert answer["OutputLocation"] == f"s3://results/out/{answer['InferenceId']}.out"
        assert answer["FailureLocation"] == f"s3://results/errors/{answer['InferenceId']}-error.out"
        assert host.object(answer["OutputLocation"]) == b"1,2,3"
        host.settle()
        assert not host.exists(answer["FailureLocation"])
        [seen] = instance.seen
        assert (seen.path, seen.body) == ("/invocations", b"1,2,3")
        assert seen.headers["content-type"] == "text/csv"  # the object's
        assert seen.headers["accept"] == "text/csv"
        assert seen.headers["x-amzn-sagemaker-custom-attributes"] == "trace=7"
        assert seen.headers["x-amzn-sagemaker-inference-id"] == answer["InferenceId"]


def test_input_may_come_with_the_request(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        host.publish_route(instance)
        answer = host.invoke(b'{"a": 1}', ContentType="application/json", InferenceId="mine / 1")
        assert answer["InferenceId"] == "mine / 1"
        assert host.object(answer["OutputLocation"]) == b'{"a": 1}'
        assert instance.seen[0].headers["content-type"] == "application/json"


def test_result_may_have_a_name_of_its_own(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        host.publish_route(instance)
        answer = host.invoke(b"x", S3OutputPathExtension="a/b", Filename="mine.json")
        assert answer["OutputLocation"] == "s3://results/out/a/b/mine.json"
        assert answer["FailureLocation"] == "s3://results/errors/a/b/mine-error.out"
        assert host.object(answer["OutputLocation"]) == b"x"


def test_no_failure_path_is_no_failure_location(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        instance.invoke = lambda _: Reply(500, b"broken")
        host.publish_route(instance, spec=AsyncSpec("s3://results"))
        answer = host.invoke(b"x")
        assert "FailureLocation" not in answer
        assert answer["OutputLocation"] == f"s3://results/{answer['InferenceId']}.out"
        host.settle()
        assert host.keys("") == []


def test_error_of_the_model_is_the_object_at_the_failure_location(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        instance.invoke = lambda _: Reply(400, b'{"error": "no such tensor"}')
        host.publish_route(instance)
        answer = host.invoke(b"x")
        document = json.loads(host.object(answer["FailureLocation"]))
        assert document["ErrorCode"] == "ModelError"
        assert document["OriginalStatusCode"] == 400
        assert document["OriginalMessage"] == '{"error": "no such tensor"}'
        host.settle()
        assert not host.exists(answer["OutputLocation"])
        assert len(instance.seen) == 1
        assert host.metric("InvocationFailures") == (1, 1)
        assert host.metric("InvocationsProcesssed") is None


def test_large_inputs_and_results_go_through_files(tmp_path: Path) -> None:
    with async_host(tmp_path, memory_bytes=1000) as host, fake_instance() as instance:
        instance.invoke = lambda received: Reply(200, [received.body] * 3)
        host.publish_route(instance)
        data = bytes(range(256)) * 20_000
        answer = host.invoke(InputLocation=host.put("in", data))
        assert host.object(answer["OutputLocation"]) == data * 3
        host.settle()
        assert list((tmp_path / "async-results").iterdir()) == []


def test_error_that_is_large_is_told_in_part(tmp_path: Path) -> None:
    with async_host(tmp_path, memory_bytes=1000) as host, fake_instance() as instance:
        instance.invoke = lambda _: Reply(500, b"e" * 100_000)
        host.publish_route(instance)
        answer = host.invoke(b"x")
        assert json.loads(host.object(answer["FailureLocation"]))["OriginalMessage"] == "e" * 16_384
        host.settle()
        assert list((tmp_path / "async-results").iterdir()) == []


def test_missing_input_is_a_failure(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        host.publish_route(instance)
        answer = host.invoke(InputLocation="s3://results/missing")
        document = json.loads(host.object(answer["FailureLocation"]))
        assert "there is no such object" in document["Message"]
        host.settle()
        assert instance.seen == []
        assert host.metric("RequestDownloadFailures") == (1, 1)
        assert json.loads(host.notices[0].text)["invocationStatus"] == "Failed"


def test_input_that_is_too_large_is_a_failure(tmp_path: Path) -> None:
    with async_host(tmp_path, input_bytes=1000) as host, fake_instance() as instance:
        host.publish_route(instance)
        answer = host.invoke(InputLocation=host.put("in", bytes(1001)))
        document = json.loads(host.object(answer["FailureLocation"]))
        assert "has 1,001 bytes; it may have 1,000" in document["Message"]


def test_result_that_is_too_large_is_a_failure(tmp_path: Path) -> None:
    with async_host(tmp_path, input_bytes=1000) as host, fake_instance() as instance:
        instance.invoke = lambda _: Reply(200, bytes(1001))
        host.publish_route(instance)
        answer = host.invoke(b"x")
        document = json.loads(host.object(answer["FailureLocation"]))
        assert "the response is larger than 1,000 bytes" in document["Message"]


def test_instance_that_takes_too_long_is_a_failure(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        over = threading.Event()

        def hang(_: Received) -> Reply:
            assert over.wait(60)
            return Reply()

        instance.invoke = hang
        host.publish_route(instance)
        answer = host.invoke(b"x", InvocationTimeoutSeconds=1)
        document = json.loads(host.object(answer["FailureLocation"]))
        over.set()
        assert (
            "timed out while waiting for a response from container primary after 1 seconds"
            in document["Message"]
        )
        assert len(instance.seen) == 1


def test_request_that_broke_off_is_sent_to_another_instance(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as one, fake_instance() as other:
        one.invoke = lambda _: Reply(200, b"", breaks=True)
        host.publish_route(one, other)
        answers = [host.invoke(b"x") for _ in range(4)]
        host.settle()
        assert [host.object(answer["OutputLocation"]) for answer in answers] == [b"x"] * 4


def test_request_that_breaks_off_each_time_fails(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        instance.invoke = lambda _: Reply(200, b"", breaks=True)
        host.publish_route(instance)
        answer = host.invoke(b"x")
        document = json.loads(host.object(answer["FailureLocation"]))
        assert "the request was sent 3 times" in document["Message"]
        assert len(instance.seen) == 3


def test_instance_that_accepts_nothing_is_waited_for(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        gone = FakeInstance()
        gone.close()
        route = host.publish_route(gone)
        answer = host.invoke(b"x")
        host.join(route, instance)
        assert host.object(answer["OutputLocation"]) == b"x"


def test_instance_gets_as_many_requests_at_a_time_as_configured(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        gate = threading.Event()

        def wait(received: Received) -> Reply:
            assert gate.wait(60)
            return Reply(200, received.body)

        instance.invoke = wait
        host.publish_route(instance)
        answers = [host.invoke(b"%d" % number) for number in range(9)]
        wait_until(lambda: len(instance.seen) == 2, "two requests at the instance")
        assert host.backlog == 9
        gate.set()
        host.settle()
        assert instance.most_invoked == 2
        assert [host.object(each["OutputLocation"]) for each in answers] == [b"%d" % n for n in range(9)]
        assert sorted(each.body for each in instance.seen) == [b"%d" % number for number in range(9)]


def test_requests_are_run_in_their_order(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        route = host.publish_route(spec=AsyncSpec("s3://results/out", concurrency=1))
        for number in range(20):
            host.invoke(b"%d" % number)
        assert host.backlog == 20
        host.join(route, instance)
        host.settle()
        assert [each.body for each in instance.seen] == [b"%d" % number for number in range(20)]


def test_weights_of_variants_are_respected(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as one, fake_instance() as other:
        host.publish_route(variants=[variant("A", one, weight=9), variant("B", other, weight=1)])
        for _ in range(200):
            host.invoke(b"x")
        host.settle()
        assert len(one.seen) + len(other.seen) == 200
        assert 2 <= len(other.seen) <= 50


def test_fleets_of_an_update_get_their_shares(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as old, fake_instance() as new:
        canary = FleetRoute("c2", {"A": variant("A", new)}, 0.1)
        host.publish_route(old, beside=[canary])
        for _ in range(200):
            host.invoke(b"x")
        host.settle()
        assert len(old.seen) + len(new.seen) == 200
        assert 2 <= len(new.seen) <= 50


def test_variant_without_instances_gets_no_requests(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        host.publish_route(variants=[variant("A", weight=9), variant("B", instance, weight=1)])
        answers = [host.invoke(b"x") for _ in range(10)]
        host.settle()
        assert all(host.exists(answer["OutputLocation"]) for answer in answers)


def test_queue_goes_on_with_the_fleet_of_an_update(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as old, fake_instance() as new:
        held = threading.Event()

        def hold(received: Received) -> Reply:
            assert held.wait(60)
            return Reply(200, received.body)

        old.invoke = hold
        before = host.publish_route(old)
        answers = [host.invoke(b"%d" % number) for number in range(10)]
        wait_until(lambda: len(old.seen) == 2, "two requests at the old instance")
        host.publish_route(new)
        wait_until(lambda: len(new.seen) == 8, "the others at the new instance")
        [target] = before.variants["A"].targets
        host.leave(before, target)
        held.set()
        host.settle()
        assert [host.object(each["OutputLocation"]) for each in answers] == [b"%d" % n for n in range(10)]
        assert len(old.seen) + len(new.seen) == 10


def test_requests_of_an_endpoint_that_is_gone_are_dropped(tmp_path: Path) -> None:
    with async_host(tmp_path) as host:
        host.publish_route()
        for _ in range(3):
            host.invoke(b"x")
        host.loop.call(host.table.withdraw, ENDPOINT)
        assert "Endpoint e of account 000000000000 not found." in host.refused(Body=b"x")
        host.loop.call(host.asynchronous.forget, ENDPOINT)
        assert host.backlog == 0
        host.restart()
        with fake_instance() as instance:
            host.publish_route(instance)
            answer = host.invoke(b"y")
            assert host.object(answer["OutputLocation"]) == b"y"
            host.settle()
            assert [each.body for each in instance.seen] == [b"y"]
            assert len(host.keys("")) == 1


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({}, "Exactly one of InputLocation and Body must be given; neither was given"),
        ({"Body": b"x", "InputLocation": "s3://b/k"}, "Exactly one of InputLocation and Body must be given; both"),
        ({"InputLocation": "https://b/k"}, "InputLocation 'https://b/k' is no object's URL; expected s3://BUCKET/KEY"),
        ({"InputLocation": "s3://b"}, "InputLocation 's3://b' is no object's URL"),
        ({"InputLocation": "ftp://b/k"}, "Value 'ftp://b/k' at 'inputLocation' failed to satisfy constraint"),
        ({"Body": b"x", "RequestTTLSeconds": 59}, "Value '59' at 'requestTTLSeconds' failed to satisfy constraint"),
        ({"Body": b"x", "RequestTTLSeconds": 21601}, "Value '21601' at 'requestTTLSeconds' failed"),
        ({"Body": b"x", "InvocationTimeoutSeconds": 3601}, "Value '3601' at 'invocationTimeoutSeconds' failed"),
        ({"Body": b"x", "InvocationTimeoutSeconds": -1}, "Value '-1' of InvocationTimeoutSeconds is not a whole"),
        ({"Body": b"x", "Filename": "../up"}, "Value '../up' at 'filename' failed to satisfy constraint"),
        ({"Body": b"x", "S3OutputPathExtension": "s3://b"}, "at 's3OutputPathExtension' failed to satisfy"),
        ({"Body": bytes(128_001)}, "Body has 128,001 bytes or more, and it may have 128,000"),
        ({"Body": b"x", "EndpointName": "other"}, "Endpoint other of account 000000000000 not found."),
    ],
)  # fmt: skip
def test_request_that_cannot_be_accepted_is_refused(
    request_: dict[str, object], text: str, tmp_path: Path
) -> None:
    with async_host(tmp_path) as host:
        host.publish_route()
        assert text in host.refused(**request_)
        assert host.backlog == 0


def test_largest_body_is_accepted(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        host.publish_route(instance)
        answer = host.invoke(bytes(128_000))
        assert host.object(answer["OutputLocation"]) == bytes(128_000)


def test_asynchronous_endpoint_answers_nothing_at_once_and_others_only_that(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        route = host.publish_route(instance)
        for operation in ("invoke_endpoint", "invoke_endpoint_with_response_stream"):
            with pytest.raises(ClientError, match="e of account 000000000000 is an asynchronous endpoint"):
                getattr(host.client(), operation)(EndpointName="e", Body=b"x")
        route.asynchronous = None
        assert "Endpoint e of account 000000000000 is not an asynchronous endpoint" in host.refused(Body=b"x")


def test_topics_are_told_as_sagemaker_tells_them(tmp_path: Path) -> None:
    with async_host(tmp_path, now=1_772_625_600.5) as host, fake_instance() as instance:
        host.spec = AsyncSpec(
            "s3://results", "s3://results", 1, SUCCESS, ERROR, frozenset({"SUCCESS_NOTIFICATION_TOPIC"})
        )
        host.publish_route(instance)
        source = host.put("in", b"abc")
        done = host.invoke(InputLocation=source, ContentType="text/csv", Accept="text/csv", InferenceId="one")
        host.settle()
        instance.invoke = lambda _: Reply(500, b"broken")
        failed = host.invoke(b"x", InferenceId="two")
        host.settle()
    assert [notice.topic for notice in host.notices] == [SUCCESS, ERROR]
    messages = [json.loads(notice.text) for notice in host.notices]
    assert messages[0] == {
        "awsRegion": "us-east-1",
        "eventTime": "2026-03-04T12:00:00.500Z",
        "receivedTime": "2026-03-04T12:00:00.500Z",
        "invocationStatus": "Completed",
        "requestParameters": {
            "accept": "text/csv",
            "contentType": "text/csv",
            "endpointName": "e",
            "inputLocation": source,
        },
        "responseParameters": {"contentType": "text/csv", "outputLocation": done["OutputLocation"]},
        "responseBody": {
            "content": "YWJj",
            "encoding": "BASE64",
            "message": "Check S3 path location(if configured) or Cloudwatch for additional details.",
        },
        "inferenceId": "one",
        "eventVersion": "1.0",
        "eventSource": "aws:sagemaker",
        "eventName": "InferenceResult",
    }
    assert messages[1]["invocationStatus"] == "Failed"
    assert messages[1]["failureReason"].startswith("ModelError: Received server error (500) from primary")
    assert messages[1]["responseParameters"]["failureLocation"] == failed["FailureLocation"]
    assert "responseBody" not in messages[1]


def test_topic_that_is_not_there_is_counted(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        host.missing.add(SUCCESS)
        host.publish_route(instance)
        host.invoke(b"x")
        host.settle()
        assert host.metric("NotificationFailures") == (1, 1)
        assert host.metric("InvocationsProcesssed") == (1, 1)


def test_key_may_invoke_asynchronously_if_it_says_so(tmp_path: Path) -> None:
    account = ENDPOINT.account
    keys = {
        "MAY": Key("MAY", "secret", account, ("sagemaker:InvokeEndpointAsync",)),
        "MAYNOT": Key("MAYNOT", "secret", account, ("sagemaker:InvokeEndpoint",)),
    }
    with async_host(tmp_path, keys=keys) as host, fake_instance() as instance:
        host.publish_route(instance)
        may, may_not = (
            host.client(aws_access_key_id=each, aws_secret_access_key="secret") for each in ("MAY", "MAYNOT")
        )
        answer = may.invoke_endpoint_async(EndpointName="e", Body=b"x")
        assert host.object(answer["OutputLocation"]) == b"x"
        with pytest.raises(ClientError, match="AccessDenied"):
            may_not.invoke_endpoint_async(EndpointName="e", Body=b"x")
        with pytest.raises(ClientError, match="AccessDenied"):
            may.invoke_endpoint(EndpointName="e", Body=b"x")
        with pytest.raises(ClientError, match="does not match"):
            host.client(aws_access_key_id="MAY").invoke_endpoint_async(EndpointName="e", Body=b"x")
        host.settle()
        assert len(instance.seen) == 1
