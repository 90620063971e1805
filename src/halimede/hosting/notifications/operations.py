"""SNS's operations on topics and subscriptions."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson

from halimede.hosting.api.query_protocol import escape
from halimede.hosting.api.services import Operation, Service
from halimede.hosting.api.tasks import RequestTasks
from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import Request as HttpRequest
from halimede.hosting.identity import Caller
from halimede.hosting.notifications.addresses import FLAG, is_own
from halimede.hosting.notifications.notifications import Notifications
from halimede.hosting.notifications.records import Subscription, Topic, invalid_parameter, scope_of
from halimede.hosting.paging import begin_of

_NAME = re.compile(r"[A-Za-z0-9_-]{1,256}")
_PAGE = 100
_MESSAGE_BYTES = 256 << 10
_PENDING = "PendingConfirmation"
_PROTOCOLS = ("http", "https")

Request = Mapping[str, Any]
Answer = dict[str, Any]


class SnsOperations:
    """The operations."""

    def __init__(self, notifications: Notifications) -> None:
        self._all = notifications
        self._visits = RequestTasks()

    def service(self) -> Service:
        """The service."""
        operations: Mapping[str, Operation] = {
            "CreateTopic": self._create_topic,
            "DeleteTopic": self._delete_topic,
            "ListTopics": self._list_topics,
            "GetTopicAttributes": self._get_topic,
            "SetTopicAttributes": self._set_topic,
            "Subscribe": self._subscribe,
            "ConfirmSubscription": self._confirm,
            "ListSubscriptions": self._list_subscriptions,
            "ListSubscriptionsByTopic": self._list_of_topic,
            "GetSubscriptionAttributes": self._get_subscription,
            "SetSubscriptionAttributes": self._set_subscription,
            "Unsubscribe": self._unsubscribe,
            "Publish": self._publish,
        }
        return Service("sns", operations, refusal="InvalidParameter", denial="AuthorizationError")

    # topics

    async def _create_topic(self, request: Request, caller: Caller) -> Answer:
        name, attributes = request["Name"], request.get("Attributes", {})
        if name.endswith(".fifo") or attributes.get("FifoTopic") == "true":
            raise invalid_parameter("FIFO topics are not available in this version; use a standard topic")
        if not _NAME.fullmatch(name):
            raise invalid_parameter("Topic Name")
        topic = await self._all.create_topic(caller.scope, name, attributes.get("DisplayName", ""))
        return {"TopicArn": topic.arn}

    async def _delete_topic(self, request: Request, caller: Caller) -> Answer:
        arn = request["TopicArn"]
        if scope_of(arn) == caller.scope:
            await self._all.delete_topic(arn)
        return {}

    async def _list_topics(self, request: Request, caller: Caller) -> Answer:
        arns = sorted(arn for arn in self._all.topics if scope_of(arn) == caller.scope)
        return _page(request, "Topics", [{"TopicArn": arn} for arn in arns])

    async def _get_topic(self, request: Request, caller: Caller) -> Answer:
        topic = self._all.topic(request["TopicArn"], caller.scope)
        subscriptions = self._all.of_topic(topic.arn)
        confirmed = sum(each.is_confirmed for each in subscriptions)
        return {
            "Attributes": {
                "TopicArn": topic.arn,
                "Owner": caller.account,
                "DisplayName": topic.display_name,
                "SubscriptionsConfirmed": str(confirmed),
                "SubscriptionsPending": str(len(subscriptions) - confirmed),
                "SubscriptionsDeleted": "0",
            }
        }

    async def _set_topic(self, request: Request, caller: Caller) -> Answer:
        topic = self._all.topic(request["TopicArn"], caller.scope)
        if request["AttributeName"] != "DisplayName":
            raise invalid_parameter(
                f"AttributeName: {request['AttributeName']} is not available in this version"
            )
        changed: Topic = replace(topic, display_name=request.get("AttributeValue", ""))
        await self._all.change_topic(changed)
        return {}

    # subscriptions

    async def _subscribe(self, request: Request, caller: Caller) -> Answer:
        topic = self._all.topic(request["TopicArn"], caller.scope)
        protocol, endpoint = request["Protocol"], request.get("Endpoint", "")
        if protocol not in _PROTOCOLS:
            raise invalid_parameter(
                f"Protocol '{protocol}' is not available in this version; it has {' and '.join(_PROTOCOLS)}"
            )
        self._check_endpoint(protocol, endpoint, caller)
        attributes = request.get("Attributes", {})
        for name in attributes:
            if name != "RawMessageDelivery":
                raise invalid_parameter(f"Attributes: {name} is not available in this version")
        made = await self._all.subscribe(
            topic.arn,
            protocol,
            endpoint,
            is_raw=_is_true(attributes.get("RawMessageDelivery", "false")),
            is_local=caller.is_local,
        )
        is_told = made.is_confirmed or request.get("ReturnSubscriptionArn", False)
        return {"SubscriptionArn": made.arn if is_told else "pending confirmation"}

    def _check_endpoint(self, protocol: str, endpoint: str, caller: Caller) -> None:
        """Refuse an endpoint that is no URL, or an address of this machine if the caller may not subscribe those."""
        host = _host_of(protocol, endpoint)
        if is_own(host) and not self._all.loopback.permits(is_local=caller.is_local):
            raise invalid_parameter(
                f"Endpoint: '{host[:256]}' is an address of the host's own machine; {FLAG} says which clients may "
                f"subscribe those"
            )

    async def _confirm(self, request: Request, caller: Caller) -> Answer:
        topic = self._all.topic(request["TopicArn"], caller.scope)
        confirmed = await self._all.confirm(topic.arn, request["Token"])
        return {"SubscriptionArn": confirmed.arn}

    async def _list_subscriptions(self, request: Request, caller: Caller) -> Answer:
        mine = [each for each in self._all.subscriptions.values() if scope_of(each.topic) == caller.scope]
        return _page(request, "Subscriptions", [_summary(each) for each in mine])

    async def _list_of_topic(self, request: Request, caller: Caller) -> Answer:
        topic = self._all.topic(request["TopicArn"], caller.scope)
        return _page(request, "Subscriptions", [_summary(each) for each in self._all.of_topic(topic.arn)])

    def _find(self, request: Request, caller: Caller) -> Subscription:
        found = self._all.subscriptions.get(request["SubscriptionArn"])
        if found is None or scope_of(found.topic) != caller.scope:
            raise ApiError("NotFound", "Subscription does not exist", 404)
        return found

    async def _get_subscription(self, request: Request, caller: Caller) -> Answer:
        found = self._find(request, caller)
        return {
            "Attributes": {
                **_summary(found),
                "SubscriptionArn": found.arn,
                "PendingConfirmation": str(not found.is_confirmed).lower(),
                "RawMessageDelivery": str(found.is_raw).lower(),
                "ConfirmationWasAuthenticated": "false",
            }
        }

    async def _set_subscription(self, request: Request, caller: Caller) -> Answer:
        found = self._find(request, caller)
        if request["AttributeName"] != "RawMessageDelivery":
            raise invalid_parameter(
                f"AttributeName: {request['AttributeName']} is not available in this version"
            )
        await self._all.change_subscription(
            replace(found, is_raw=_is_true(request.get("AttributeValue", "")))
        )
        return {}

    async def _unsubscribe(self, request: Request, caller: Caller) -> Answer:
        arn = request["SubscriptionArn"]
        if arn in self._all.subscriptions:
            self._find(request, caller)
        await self._all.unsubscribe(arn)
        return {}

    # messages

    async def _publish(self, request: Request, caller: Caller) -> Answer:
        arn = request.get("TopicArn") or request.get("TargetArn", "")
        if not arn:
            raise invalid_parameter("TopicArn or TargetArn Reason: no value for required parameter")
        topic = self._all.topic(arn, caller.scope)
        text, subject = request["Message"], request.get("Subject", "")
        if not text:
            raise invalid_parameter("Empty message")
        if len(text.encode()) > _MESSAGE_BYTES:
            raise invalid_parameter("Message too long")
        if len(subject) > 100 or "\n" in subject:
            raise invalid_parameter("Subject")
        texts: dict[str, str] = {}
        if request.get("MessageStructure") == "json":
            texts = _texts(text)
            text = texts.pop("default")
        attributes = {
            name: {
                "Type": value["DataType"],
                "Value": str(value.get("StringValue", value.get("BinaryValue", ""))),
            }
            for name, value in request.get("MessageAttributes", {}).items()
        }
        message_id = await self._all.publish(caller.scope, topic.arn, text, "", subject, texts, attributes)
        return {"MessageId": message_id}

    # links in messages

    def visit(self, request: HttpRequest) -> None:
        """Answer a request for a URL that a message has had in it: the token, or the ARN, is the permission."""
        self._visits.begin(request, self._visited(request))

    async def close(self) -> None:
        """End what is under way."""
        await self._visits.close()

    async def _visited(self, request: HttpRequest) -> None:
        asked = {name: values[0] for name, values in parse_qs(request.head.query).items()}
        action = asked.get("Action", "")
        try:
            if action == "ConfirmSubscription":
                confirmed = await self._all.confirm(asked.get("TopicArn", ""), asked.get("Token", ""))
                result = f"<SubscriptionArn>{escape(confirmed.arn)}</SubscriptionArn>"
            elif action == "Unsubscribe":
                await self._all.unsubscribe(asked.get("SubscriptionArn", ""))
                result = ""
            else:
                raise invalid_parameter("Action")
            status, text = (
                200,
                f"<{action}Response><{action}Result>{result}</{action}Result></{action}Response>",
            )
        except ApiError as error:
            status = error.status
            text = (
                f"<ErrorResponse><Error><Code>{escape(error.code)}</Code>"
                f"<Message>{escape(error.message)}</Message></Error></ErrorResponse>"
            )
        request.respond(status, text.encode(), (("Content-Type", "text/xml"),))


def _summary(subscription: Subscription) -> dict[str, str]:
    return {
        "SubscriptionArn": subscription.arn if subscription.is_confirmed else _PENDING,
        "Owner": scope_of(subscription.topic).account,
        "Protocol": subscription.protocol,
        "Endpoint": subscription.endpoint,
        "TopicArn": subscription.topic,
    }


def _page(request: Request, key: str, entries: Sequence[Mapping[str, str]]) -> Answer:
    begin = begin_of(request.get("NextToken"))
    answer: Answer = {key: entries[begin : begin + _PAGE]}
    if begin + _PAGE < len(entries):
        answer["NextToken"] = str(begin + _PAGE)
    return answer


def _host_of(protocol: str, endpoint: str) -> str:
    """The host in an endpoint's URL."""
    try:
        parts = urlsplit(endpoint)
        host = parts.hostname if parts.scheme == protocol and parts.port != 0 else None
    except ValueError:
        host = None
    if not host or not endpoint.isascii() or not endpoint.isprintable() or " " in endpoint:
        raise invalid_parameter(f"Endpoint: '{endpoint[:256]}' is no URL of protocol {protocol}")
    return host


def _is_true(text: str) -> bool:
    if text not in ("true", "false"):
        raise invalid_parameter(f"RawMessageDelivery: '{text}' is neither true nor false")
    return text == "true"


def _texts(text: str) -> dict[str, str]:
    """What a message of the structure ``json`` says, by protocol."""
    try:
        texts = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise invalid_parameter("Message Structure - JSON message body failed to parse") from None
    if not isinstance(texts, dict) or not all(isinstance(each, str) for each in texts.values()):
        raise invalid_parameter("Message Structure - JSON message body failed to parse")
    if "default" not in texts:
        raise invalid_parameter("Message Structure - No default entry in JSON message body")
    return texts
