"""What is kept of topics, subscriptions and messages. Times are seconds since 1970."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Scope


def topic_arn(scope: Scope, name: str) -> str:
    """The ARN of a topic."""
    return f"arn:aws:sns:{scope.region}:{scope.account}:{name}"


def scope_of(arn: str) -> Scope:
    """The account and region of a topic's or a subscription's ARN.

    Raises:
        ApiError: it is none (``InvalidParameter``).
    """
    parts = arn.split(":")
    if len(parts) not in (6, 7) or parts[0] != "arn" or parts[2] != "sns" or not all(parts[3:]):
        raise invalid_parameter(f"TopicArn Reason: '{arn[:256]}' is no ARN of a topic")
    return Scope(parts[4], parts[3])


def invalid_parameter(why: str) -> ApiError:
    """What SNS says of a parameter that makes no sense."""
    return ApiError("InvalidParameter", f"Invalid parameter: {why}")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic.

    Attributes:
        arn: its ARN.
        created: when.
        display_name: what it was called besides.
    """

    arn: str
    created: float
    display_name: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return self.arn.rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription.

    Attributes:
        arn: its ARN.
        topic: the topic's ARN.
        protocol: ``http`` or ``https``.
        endpoint: the URL.
        created: when.
        token: with which it is confirmed; "" once it is.
        is_raw: the endpoint gets the message alone (`RawMessageDelivery`).
        is_local: a client on this machine has made it.
    """

    arn: str
    topic: str
    protocol: str
    endpoint: str
    created: float
    token: str = ""
    is_raw: bool = False
    is_local: bool = False

    @property
    def is_confirmed(self) -> bool:
        """Whether it gets messages."""
        return not self.token


@dataclass(frozen=True, slots=True)
class Message:
    """A message.

    Attributes:
        id: no other message has it.
        topic: the topic's ARN.
        published: when.
        kind: ``Notification``, or ``SubscriptionConfirmation`` for one that asks an endpoint whether it agrees.
        text: the message.
        subject: its subject, "" for none.
        texts: protocol → what is said in place of `text`.
        attributes: `MessageAttributes`, as they go out.
        token: of a confirmation.
    """

    id: str
    topic: str
    published: float
    kind: str
    text: str
    subject: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    token: str = ""


def document_of(record: Topic | Subscription | Message) -> bytes:
    """What is kept of a record."""
    return orjson.dumps(asdict(record))


def read_document(document: object) -> dict[str, Any]:
    """The members of a record that was kept."""
    assert isinstance(document, bytes)
    found: dict[str, Any] = orjson.loads(document)
    return found
