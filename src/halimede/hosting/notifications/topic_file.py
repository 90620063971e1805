"""The file of topics: topics, subscriptions, messages, and deliveries that are still to be made."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from halimede.hosting.grouped_file import Change, GroupedFile
from halimede.hosting.notifications.records import Message, Subscription, Topic, document_of, read_document

VERSION = 1
"""Of the tables (`PRAGMA user_version`)."""

_SCHEMA = """
CREATE TABLE topics (arn TEXT PRIMARY KEY, document BLOB NOT NULL);
CREATE TABLE subscriptions (arn TEXT PRIMARY KEY, topic TEXT NOT NULL, document BLOB NOT NULL);
CREATE TABLE messages (
    id TEXT PRIMARY KEY, published REAL NOT NULL, logged INTEGER NOT NULL, document BLOB NOT NULL
);
CREATE INDEX by_time ON messages (published);
CREATE INDEX unlogged ON messages (logged) WHERE NOT logged;
CREATE TABLE deliveries (
    subscription TEXT, message TEXT, attempts INTEGER NOT NULL, due REAL NOT NULL, PRIMARY KEY (subscription, message)
);
CREATE INDEX by_due ON deliveries (subscription, due);
CREATE INDEX by_message ON deliveries (message);
"""

_DUE = """
SELECT messages.document, deliveries.attempts, deliveries.due FROM deliveries JOIN messages
ON messages.id = deliveries.message WHERE deliveries.subscription = ? ORDER BY deliveries.due LIMIT ?
"""
_FORGET_OLD = """
DELETE FROM messages WHERE published < ? AND logged AND id NOT IN (SELECT message FROM deliveries)
"""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that a subscription is still to get.

    Attributes:
        message: the message.
        attempts: how often it was tried.
        due: when it is tried next.
    """

    message: Message
    attempts: int
    due: float


class TopicFile:
    """The file. Lives on the event loop; `open` before, `close` after."""

    def __init__(self, path: Path) -> None:
        self._file = GroupedFile(path, _SCHEMA, VERSION, "topics and their messages")

    async def open(self) -> None:
        """Open the file, or make it.

        Raises:
            DatabaseError: it is no database, or cannot be written.
        """
        await self._file.open()

    async def close(self) -> None:
        """Close the file, when all is written."""
        await self._file.close()

    # topics and subscriptions

    async def topics(self) -> list[Topic]:
        """All topics."""
        rows = await self._file.rows("SELECT document FROM topics")
        return [Topic(**read_document(document)) for (document,) in rows]

    async def subscriptions(self) -> list[Subscription]:
        """All subscriptions."""
        rows = await self._file.rows("SELECT document FROM subscriptions ORDER BY rowid")
        return [Subscription(**read_document(document)) for (document,) in rows]

    async def put_topic(self, topic: Topic) -> None:
        """Keep a topic, in place of the one with its ARN."""
        await self._file.changed(
            ("INSERT OR REPLACE INTO topics VALUES (?, ?)", (topic.arn, document_of(topic)))
        )

    async def put_subscription(self, subscription: Subscription, confirmation: Message | None = None) -> None:
        """Keep a subscription, in place of the one with its ARN, and the message that asks it to be confirmed."""
        values = (subscription.arn, subscription.topic, document_of(subscription))
        changes: list[Change] = [("INSERT OR REPLACE INTO subscriptions VALUES (?, ?, ?)", values)]
        if confirmation is not None:
            changes += _message(confirmation, [subscription.arn], is_logged=True)
        await self._file.changed(*changes)

    async def remove_subscriptions(self, arns: Iterable[str], topic: str = "") -> None:
        """Forget subscriptions and what they were still to get, and a topic."""
        changes: list[Change] = []
        for arn in arns:
            changes.append(("DELETE FROM subscriptions WHERE arn = ?", (arn,)))
            changes.append(("DELETE FROM deliveries WHERE subscription = ?", (arn,)))
        if topic:
            changes.append(("DELETE FROM topics WHERE arn = ?", (topic,)))
        await self._file.changed(*changes)

    # messages

    async def publish(self, message: Message, subscriptions: Iterable[str]) -> None:
        """Keep a message, and what is to be made of it; nothing if there is one of that id."""
        await self._file.changed(*_message(message, subscriptions, is_logged=False))

    async def is_new(self, message: str) -> bool:
        """Whether there is no message of an id."""
        return not await self._file.rows("SELECT 1 FROM messages WHERE id = ?", message)

    async def unlogged(self) -> list[Message]:
        """The messages that may not be in a log."""
        rows = await self._file.rows("SELECT document FROM messages WHERE NOT logged ORDER BY rowid")
        return [Message(**read_document(document)) for (document,) in rows]

    async def logged(self, messages: Sequence[Message]) -> None:
        """Messages are in their logs."""
        put = "UPDATE messages SET logged = 1 WHERE id = ?"
        await self._file.changed(*((put, (message.id,)) for message in messages))

    async def forget_messages(self, before: float) -> None:
        """Forget the messages that were published before a time and have been delivered."""
        await self._file.changed((_FORGET_OLD, (before,)))

    async def deliveries(self, subscription: str, limit: int) -> list[Delivery]:
        """What a subscription is still to get, at most so many, those first that are due first."""
        rows = await self._file.rows(_DUE, subscription, limit)
        return [
            Delivery(Message(**read_document(document)), int(str(attempts)), float(str(due)))
            for document, attempts, due in rows
        ]

    async def put_off(self, subscription: str, message: str, attempts: int, due: float) -> None:
        """Try a delivery again later."""
        put = "UPDATE deliveries SET attempts = ?, due = ? WHERE subscription = ? AND message = ?"
        await self._file.changed((put, (attempts, due, subscription, message)))

    async def delivered(self, subscription: str, message: str) -> None:
        """A delivery is made, or given up."""
        statement = "DELETE FROM deliveries WHERE subscription = ? AND message = ?"
        await self._file.changed((statement, (subscription, message)))


def _message(message: Message, subscriptions: Iterable[str], *, is_logged: bool) -> list[Change]:
    """The changes that keep a message."""
    values = (message.id, message.published, int(is_logged), document_of(message))
    put: Change = ("INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?)", values)
    # not for a message that was there before, whose deliveries may have been made
    is_new = "NOT EXISTS (SELECT 1 FROM messages WHERE id = ?)"
    deliver = f"INSERT OR IGNORE INTO deliveries SELECT ?, ?, 0, ? WHERE {is_new}"
    due = message.published
    return [*((deliver, (arn, message.id, due, message.id)) for arn in subscriptions), put]
