"""Topics, as boto3 sees them, and what becomes of messages."""

import json
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Scope
from halimede.hosting.notifications.delivery import DeliverySettings
from tests.hosting.instances import FakeInstance, Received, Reply, fake_instance
from tests.hosting.notifications.serving import ACCOUNT, document, topic_host
from tests.support.waiting import wait_until

SCOPE = Scope(ACCOUNT, "us-east-1")
DONE = f"arn:aws:sns:us-east-1:{ACCOUNT}:done"


def test_topics_are_made_listed_and_deleted(tmp_path: Path) -> None:
    with topic_host(tmp_path) as host:
        sns = host.client()
        assert sns.create_topic(Name="done")["TopicArn"] == DONE
        assert sns.create_topic(Name="done")["TopicArn"] == DONE
        names = [f"t{number:03d}" for number in range(150)]
        for name in names:
            sns.create_topic(Name=name)
        pages = [page["Topics"] for page in sns.get_paginator("list_topics").paginate()]
        assert [len(page) for page in pages] == [100, 51]
        assert pages[0][0]["TopicArn"] == DONE
        sns.set_topic_attributes(TopicArn=DONE, AttributeName="DisplayName", AttributeValue="Done & over")
        host.restart()
        attributes = sns.get_topic_attributes(TopicArn=DONE)["Attributes"]
        assert (attributes["Owner"], attributes["DisplayName"]) == (ACCOUNT, "Done & over")
        assert host.client(region_name="eu-west-1").list_topics()["Topics"] == []
        sns.delete_topic(TopicArn=DONE)
        sns.delete_topic(TopicArn=DONE)
        assert host.refused("get_topic_attributes", TopicArn=DONE) == ("NotFound", "Topic does not exist")


def test_endpoint_confirms_with_the_url_and_gets_messages(tmp_path: Path) -> None:
    with topic_host(tmp_path) as host, fake_instance() as endpoint:
        sns = host.client()
        sns.create_topic(Name="done")
        url = f"http://127.0.0.1:{endpoint.port}/hook?a=b"
        answer = sns.subscribe(TopicArn=DONE, Protocol="http", Endpoint=url)
        assert answer["SubscriptionArn"] == "pending confirmation"
        wait_until(lambda: endpoint.seen)
        [asked] = endpoint.seen
        assert (asked.method, asked.path) == ("POST", "/hook?a=b")
        assert asked.headers["x-amz-sns-message-type"] == "SubscriptionConfirmation"
        confirmation = document(asked)
        assert (confirmation["Type"], confirmation["TopicArn"]) == ("SubscriptionConfirmation", DONE)
        [listed] = sns.list_subscriptions()["Subscriptions"]
        assert listed["SubscriptionArn"] == "PendingConfirmation"
        sns.publish(TopicArn=DONE, Message="too early")
        with urllib.request.urlopen(confirmation["SubscribeURL"], timeout=30) as response:
            text = response.read().decode()
        [listed] = sns.list_subscriptions_by_topic(TopicArn=DONE)["Subscriptions"]
        assert listed["SubscriptionArn"].startswith(f"{DONE}:")
        assert listed["SubscriptionArn"] in text
        attributes = {"kind": {"DataType": "String", "StringValue": "test"}}
        message_id = sns.publish(TopicArn=DONE, Message="hello", Subject="Hi", MessageAttributes=attributes)[
            "MessageId"
        ]
        wait_until(lambda: len(endpoint.seen) == 2)
        got = endpoint.seen[1]
        assert got.headers["x-amz-sns-message-type"] == "Notification"
        assert got.headers["x-amz-sns-message-id"] == message_id
        assert got.headers["x-amz-sns-topic-arn"] == DONE
        assert got.headers["x-amz-sns-subscription-arn"] == listed["SubscriptionArn"]
        message = document(got)
        assert (message["Type"], message["MessageId"], message["TopicArn"]) == (
            "Notification",
            message_id,
            DONE,
        )
        assert (message["Subject"], message["Message"]) == ("Hi", "hello")
        assert message["MessageAttributes"] == {"kind": {"Type": "String", "Value": "test"}}
        assert [line["Message"] for line in host.log("done")] == ["too early", "hello"]
        with urllib.request.urlopen(message["UnsubscribeURL"], timeout=30):
            pass
        assert sns.list_subscriptions()["Subscriptions"] == []


def test_token_that_is_none_confirms_nothing(tmp_path: Path) -> None:
    with topic_host(tmp_path) as host, fake_instance() as endpoint:
        sns = host.client()
        sns.create_topic(Name="done")
        sns.subscribe(TopicArn=DONE, Protocol="http", Endpoint=f"http://127.0.0.1:{endpoint.port}")
        refusal = ("InvalidParameter", "Invalid parameter: Token")
        assert host.refused("confirm_subscription", TopicArn=DONE, Token="0" * 64) == refusal
        url = f"http://127.0.0.1:{host.port}/-/subscription?Action=ConfirmSubscription&TopicArn={DONE}&Token="
        with pytest.raises(urllib.error.HTTPError, match="400") as raised:
            urllib.request.urlopen(url, timeout=30)
        raised.value.close()
        assert sns.list_subscriptions()["Subscriptions"][0]["SubscriptionArn"] == "PendingConfirmation"


def test_message_is_sent_until_it_is_taken(tmp_path: Path) -> None:
    with topic_host(tmp_path) as host, fake_instance() as endpoint:
        host.client().create_topic(Name="done")
        host.subscribed(DONE, endpoint)
        statuses = [503, 429, 500, 200]

        def answer(_: Received) -> Reply:
            return Reply(statuses[len(endpoint.seen) - 2])

        endpoint.invoke = answer
        host.client().publish(TopicArn=DONE, Message="x")
        wait_until(lambda: len(endpoint.seen) == 5)
        assert len({each.headers["x-amz-sns-message-id"] for each in endpoint.seen[1:]}) == 1


def test_message_that_is_refused_for_good_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with topic_host(tmp_path) as host, fake_instance() as endpoint:
        host.client().create_topic(Name="done")
        host.subscribed(DONE, endpoint)
        endpoint.invoke = lambda _: Reply(404)
        host.client().publish(TopicArn=DONE, Message="x")
        wait_until(lambda: "is not delivered to" in caplog.text)
        endpoint.invoke = lambda _: Reply()
        host.client().publish(TopicArn=DONE, Message="y")
        wait_until(lambda: len(endpoint.seen) == 3)
        assert [document(each)["Message"] for each in endpoint.seen[1:]] == ["x", "y"]


def test_endpoint_that_is_away_is_given_up_after_so_many_attempts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with topic_host(tmp_path, DeliverySettings(attempts=3, pause_s=0.01)) as host:
        endpoint = FakeInstance()
        host.client().create_topic(Name="done")
        host.subscribed(DONE, endpoint)
        endpoint.close()
        host.client().publish(TopicArn=DONE, Message="x")
        wait_until(lambda: "after 3 attempts" in caplog.text)
        assert [line["Message"] for line in host.log("done")] == ["x"]


def test_redirection_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with topic_host(tmp_path) as host, fake_instance() as endpoint, fake_instance() as other:
        host.client().create_topic(Name="done")
        host.subscribed(DONE, endpoint)
        endpoint.invoke = lambda _: Reply(307, b"", {"Location": f"http://127.0.0.1:{other.port}/"})
        host.client().publish(TopicArn=DONE, Message="x")
        wait_until(lambda: "it answered with status 307" in caplog.text)
        assert other.seen == []


def test_messages_are_delivered_by_the_next_process(tmp_path: Path) -> None:
    with topic_host(tmp_path) as host, fake_instance() as endpoint:
        host.client().create_topic(Name="done")
        host.subscribed(DONE, endpoint)
        endpoint.invoke = lambda _: Reply(503)
        for number in range(20):
            host.client().publish(TopicArn=DONE, Message=str(number))
        host.restart()
        endpoint.invoke = lambda _: Reply()
        wait_until(lambda: len({each.body for each in endpoint.seen[1:]}) == 20)
        assert [line["Message"] for line in host.log("done")] == [str(number) for number in range(20)]


def test_message_is_published_once(tmp_path: Path) -> None:
    with topic_host(tmp_path) as host, fake_instance() as endpoint:
        host.client().create_topic(Name="done")
        host.subscribed(DONE, endpoint)
        for _ in range(2):
            host.loop.run(host.notifications.publish(SCOPE, DONE, "x", "the-id"))
            wait_until(lambda: len(endpoint.seen) == 2)
            wait_until(lambda: host.is_idle)  # the next process would deliver it once more
            host.restart()
        host.loop.run(host.notifications.publish(SCOPE, DONE, "y"))
        wait_until(lambda: len(endpoint.seen) == 3)
        wait_until(lambda: len(host.log("done")) == 2)
        assert [line["Message"] for line in host.log("done")] == ["x", "y"]


@pytest.mark.parametrize(
    ("scope", "code"),
    [(Scope("1" * 12, "us-east-1"), "AuthorizationError"), (Scope(ACCOUNT, "eu-west-1"), "NotFound")],
)
def test_nothing_is_published_for_an_endpoint_of_another_account_or_region(
    tmp_path: Path, scope: Scope, code: str
) -> None:
    with topic_host(tmp_path) as host:
        host.client().create_topic(Name="done")
        with pytest.raises(ApiError) as raised:
            host.loop.run(host.notifications.publish(scope, DONE, "x"))
        assert raised.value.code == code
        assert host.log("done") == []


def test_message_that_was_not_logged_is_logged_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with topic_host(tmp_path) as host:
        host.client().create_topic(Name="done")
        file: Any = host.notifications._file  # noqa: SLF001 - the disk that fails

        lost_times: list[None] = []

        async def lost(_: Any) -> None:
            """The process is killed before that is written."""
            lost_times.append(None)

        monkeypatch.setattr(file, "logged", lost)
        host.loop.run(host.notifications.publish(SCOPE, DONE, "logged already"))
        wait_until(lambda: len(lost_times) == 1)
        monkeypatch.setattr("halimede.hosting.notifications.message_log.write", lambda *_, **__: None)
        host.loop.run(host.notifications.publish(SCOPE, DONE, "not yet"))
        wait_until(lambda: len(lost_times) == 2)
        monkeypatch.undo()
        host.restart()
        host.restart()
        assert [line["Message"] for line in host.log("done")] == ["logged already", "not yet"]


def test_endpoint_may_get_the_message_alone(tmp_path: Path) -> None:
    with topic_host(tmp_path) as host, fake_instance() as endpoint:
        sns = host.client()
        sns.create_topic(Name="done")
        arn = host.subscribed(DONE, endpoint, RawMessageDelivery="true")
        texts = json.dumps({"default": "d", "http": "for http"})
        sns.publish(TopicArn=DONE, Message=texts, MessageStructure="json")
        wait_until(lambda: len(endpoint.seen) == 2)
        assert (endpoint.seen[1].body, endpoint.seen[1].headers["x-amz-sns-rawdelivery"]) == (
            b"for http",
            "true",
        )
        sns.set_subscription_attributes(
            SubscriptionArn=arn, AttributeName="RawMessageDelivery", AttributeValue="false"
        )
        assert (
            sns.get_subscription_attributes(SubscriptionArn=arn)["Attributes"]["RawMessageDelivery"]
            == "false"
        )
        sns.publish(TopicArn=DONE, Message="whole")
        wait_until(lambda: len(endpoint.seen) == 3)
        assert document(endpoint.seen[2])["Message"] == "whole"
        sns.unsubscribe(SubscriptionArn=arn)
        assert host.refused("get_subscription_attributes", SubscriptionArn=arn)[0] == "NotFound"


def test_old_messages_and_subscriptions_are_forgotten(tmp_path: Path) -> None:
    with topic_host(tmp_path, now=1_000_000.0) as host, fake_instance() as endpoint:
        endpoint.invoke = lambda _: Reply(503)
        sns = host.client()
        sns.create_topic(Name="done")
        sns.subscribe(TopicArn=DONE, Protocol="http", Endpoint=f"http://127.0.0.1:{endpoint.port}")
        host.loop.run(host.notifications.publish(SCOPE, DONE, "x", "the-id"))
        wait_until(lambda: len(host.log("done")) == 1)
        host.now = 1_000_000.0 + 2 * 86_400 - 1
        host.loop.run(host.notifications.tidy())
        assert len(sns.list_subscriptions()["Subscriptions"]) == 1
        host.now += 2
        host.loop.run(host.notifications.tidy())
        assert sns.list_subscriptions()["Subscriptions"] == []
        host.loop.run(host.notifications.publish(SCOPE, DONE, "x", "the-id"))  # is not known any more
        wait_until(lambda: len(host.log("done")) == 2)


@pytest.mark.parametrize(
    ("operation", "request_", "refusal"),
    [
        ("create_topic", {"Name": "a b"}, ("InvalidParameter", "Invalid parameter: Topic Name")),
        ("create_topic", {"Name": "a.fifo"}, ("InvalidParameter", "FIFO topics are not available")),
        ("publish", {"TopicArn": f"{DONE}x", "Message": "x"}, ("NotFound", "Topic does not exist")),
        (
            "publish",
            {"TopicArn": DONE.replace(ACCOUNT, "1" * 12), "Message": "x"},
            ("AuthorizationError", "no resource-based policy allows the sns:Publish action"),
        ),
        ("publish", {"TopicArn": "nonsense", "Message": "x"}, ("InvalidParameter", "is no ARN of a topic")),
        (
            "publish",
            {"PhoneNumber": "1", "Message": "x"},
            ("InvalidParameter", "TopicArn or TargetArn Reason"),
        ),
        ("publish", {"TopicArn": DONE, "Message": ""}, ("InvalidParameter", "Empty message")),
        (
            "publish",
            {"TopicArn": DONE, "Message": "x" * (262_144 + 1)},
            ("InvalidParameter", "Message too long"),
        ),
        (
            "publish",
            {"TopicArn": DONE, "Message": "x", "Subject": "s" * 101},
            ("InvalidParameter", "Subject"),
        ),
        (
            "publish",
            {"TopicArn": DONE, "Message": "{}", "MessageStructure": "json"},
            ("InvalidParameter", "No default entry"),
        ),
        (
            "publish",
            {"TopicArn": DONE, "Message": "{", "MessageStructure": "json"},
            ("InvalidParameter", "to parse"),
        ),
        (
            "subscribe",
            {"TopicArn": DONE, "Protocol": "sqs", "Endpoint": "x"},
            ("InvalidParameter", "'sqs' is not"),
        ),
        (
            "subscribe",
            {"TopicArn": DONE, "Protocol": "http", "Endpoint": "https://h"},
            ("InvalidParameter", "no URL"),
        ),
        (
            "subscribe",
            {"TopicArn": DONE, "Protocol": "http", "Endpoint": "http://"},
            ("InvalidParameter", "no URL"),
        ),
        (
            "subscribe",
            {
                "TopicArn": DONE,
                "Protocol": "http",
                "Endpoint": "http://h",
                "Attributes": {"FilterPolicy": "{}"},
            },
            ("InvalidParameter", "FilterPolicy is not available"),
        ),
        ("confirm_subscription", {"TopicArn": DONE, "Token": "x"}, ("InvalidParameter", "Token")),
        (
            "set_topic_attributes",
            {"TopicArn": DONE, "AttributeName": "Policy", "AttributeValue": "{}"},
            ("InvalidParameter", "Policy is not available"),
        ),
        (
            "tag_resource",
            {"ResourceArn": DONE, "Tags": []},
            ("UnknownOperationException", "TagResource is not"),
        ),
    ],
)
def test_what_cannot_be_done_is_refused(
    operation: str, request_: dict[str, Any], refusal: tuple[str, str], tmp_path: Path
) -> None:
    with topic_host(tmp_path) as host:
        host.client().create_topic(Name="done")
        code, text = host.refused(operation, **request_)
        assert code == refusal[0]
        assert refusal[1] in text


def test_message_that_cannot_be_logged_is_logged_when_that_is_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with topic_host(tmp_path) as host:
        host.client().create_topic(Name="done")
        with monkeypatch.context() as full:

            def fail(*_: Any, **__: Any) -> None:
                raise OSError(28, "No space left on device")

            full.setattr("halimede.hosting.notifications.message_log.write", fail)
            host.loop.run(host.notifications.publish(SCOPE, DONE, "first"))
            wait_until(lambda: "No space left on device" in caplog.text)
        host.loop.run(host.notifications.tidy())
        wait_until(lambda: host.log("done"))
        host.loop.run(host.notifications.publish(SCOPE, DONE, "second"))
        wait_until(lambda: len(host.log("done")) == 2)
        assert [line["Message"] for line in host.log("done")] == ["first", "second"]


def test_messages_are_delivered_after_an_error_that_nobody_foresaw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with topic_host(tmp_path) as host, fake_instance() as endpoint:
        host.client().create_topic(Name="done")
        host.subscribed(DONE, endpoint)
        file: Any = host.notifications._file  # noqa: SLF001 - the disk that fails
        deliveries = file.deliveries
        failed: list[None] = []

        async def fail_once(*arguments: Any) -> Any:
            if not failed:
                failed.append(None)
                raise RuntimeError("nobody foresaw this")
            return await deliveries(*arguments)

        monkeypatch.setattr(file, "deliveries", fail_once)
        host.client().publish(TopicArn=DONE, Message="x")
        wait_until(lambda: len(endpoint.seen) == 2)
        assert failed


def test_endpoint_that_takes_nothing_is_tried_with_one_message_at_a_time(tmp_path: Path) -> None:
    """Those that hang would otherwise leave no threads to others."""
    with topic_host(tmp_path) as host, fake_instance() as endpoint:
        host.client().create_topic(Name="done")
        host.subscribed(DONE, endpoint)
        lock, asked, at_once = threading.Lock(), [0, 0], [0]

        def refuse(_: Received) -> Reply:
            with lock:
                asked[0] += 1
                asked[1] += 1
                if asked[1] > 8:  # the first ones are sent together
                    at_once[0] = max(at_once[0], asked[0])
            time.sleep(0.01)  # sleeps: an endpoint that answers slowly
            with lock:
                asked[0] -= 1
            return Reply(503)

        endpoint.invoke = refuse
        for number in range(20):
            host.client().publish(TopicArn=DONE, Message=str(number))
        wait_until(lambda: asked[1] > 30)
        assert at_once == [1]
        endpoint.invoke = lambda _: Reply()
        wait_until(lambda: host.is_idle)
