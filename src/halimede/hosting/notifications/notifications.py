"""Topics, their subscriptions and what is published there: all of it, put together."""

import asyncio
import logging
import secrets
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from halimede.core import tasks
from halimede.core.clock import WALL_CLOCK
from halimede.hosting.each_second import EachSecond
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Scope
from halimede.hosting.notifications import message_log
from halimede.hosting.notifications.addresses import LoopbackSubscriptions
from halimede.hosting.notifications.delivery import (
    CONFIRMATION,
    NOTIFICATION,
    Deliveries,
    DeliverySettings,
    Post,
    post,
)
from halimede.hosting.notifications.records import Message, Subscription, Topic, scope_of, topic_arn
from halimede.hosting.notifications.topic_file import TopicFile

logger = logging.getLogger("halimede")

_REMEMBERED_S = 3600
"""So long the ids of messages are known, so that none is published twice."""

_CONFIRMED_WITHIN_S = 2 * 86_400
"""How long a token holds (SNS's limit)."""

_TIDY_S = 60.0


class Notifications:
    """All topics. Lives on the event loop.

    Attributes:
        topics: by ARN.
        subscriptions: by ARN, in the order in which they were made.
        loopback: from whom subscriptions of endpoints at addresses of this machine alone are accepted.
    """

    def __init__(
        self,
        path: Path,
        logs: Path,
        host_url: Callable[[], str],
        settings: DeliverySettings = DeliverySettings(),  # noqa: B008 - never changes
        now: Callable[[], float] = WALL_CLOCK.now,
        send: Post = post,
        loopback: LoopbackSubscriptions = LoopbackSubscriptions.LOOPBACK,
    ) -> None:
        """Nothing is delivered before `start`.

        Args:
            path: the file of topics.
            logs: where the logs of topics are.
            host_url: where this host is reached.
            settings: how messages are delivered.
            now: the time, in seconds since 1970.
            send: sends.
            loopback: from whom subscriptions of endpoints at addresses of this machine alone are accepted.
        """
        self.topics: dict[str, Topic] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self._of_topic: defaultdict[str, dict[str, Subscription]] = defaultdict(dict)
        self._file = TopicFile(path)
        self._logs = logs
        self._now = now
        self._deliveries = Deliveries(self._file, host_url, now, settings, send, loopback)
        self.loopback = loopback
        self._unlogged: deque[Message] = deque()
        self._logging: asyncio.Task[None] | None = None
        self._is_log_behind = False
        # not at once: whoever publishes again what it had published asks first
        self._tidying = EachSecond("topics", self.tidy, lambda: _TIDY_S)
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Read what was there before, and go on with it.

        Raises:
            DatabaseError: the file cannot be used.
        """
        await self._file.open()
        self.topics = {topic.arn: topic for topic in await self._file.topics()}
        for subscription in await self._file.subscriptions():
            self._keep(subscription)
        left = await self._file.unlogged()
        if left:
            await self._log(left, may_be_there=True)
        for subscription in self.subscriptions.values():
            self._deliveries.begin(subscription)
        self._tidying.start()

    async def stop(self) -> None:
        """Deliver no more; the next process goes on."""
        await self._tidying.stop()
        await tasks.cancel(self._logging)
        await self._deliveries.stop()
        await self._file.close()

    def _keep(self, subscription: Subscription) -> None:
        self.subscriptions[subscription.arn] = subscription
        self._of_topic[subscription.topic][subscription.arn] = subscription

    # topics

    def topic(self, arn: str, scope: Scope) -> Topic:
        """A topic of an account and region.

        Raises:
            ApiError: there is none.
        """
        if scope_of(arn).account != scope.account:
            raise ApiError("AuthorizationError", f"{arn} belongs to another account", 403)
        found = self.topics.get(arn)
        if found is None or scope_of(arn) != scope:
            raise ApiError("NotFound", "Topic does not exist", 404)
        return found

    async def create_topic(self, scope: Scope, name: str, display_name: str) -> Topic:
        """Make a topic; the one that is there already, if there is."""
        async with self._changing:
            arn = topic_arn(scope, name)
            known = self.topics.get(arn)
            if known is not None:
                return known
            topic = Topic(arn, self._now(), display_name)
            await self._file.put_topic(topic)
            self.topics[arn] = topic
            return topic

    async def change_topic(self, topic: Topic) -> None:
        """Keep a topic that has changed."""
        async with self._changing:
            await self._file.put_topic(topic)
            self.topics[topic.arn] = topic

    async def delete_topic(self, arn: str) -> None:
        """Remove a topic and its subscriptions; nothing if there is none."""
        async with self._changing:
            await self._remove(list(self._of_topic.get(arn, ())), arn)

    async def _remove(self, subscriptions: Sequence[str], topic: str = "") -> None:
        await self._file.remove_subscriptions(subscriptions, topic)
        for arn in subscriptions:
            gone = self.subscriptions.pop(arn)
            del self._of_topic[gone.topic][arn]
            self._deliveries.end(arn)
        if topic:
            self.topics.pop(topic, None)
            self._of_topic.pop(topic, None)

    # subscriptions

    def of_topic(self, arn: str) -> list[Subscription]:
        """The subscriptions of a topic."""
        return list(self._of_topic.get(arn, {}).values())

    async def subscribe(
        self, topic: str, protocol: str, endpoint: str, *, is_raw: bool, is_local: bool
    ) -> Subscription:
        """Make a subscription, and ask its endpoint to confirm it; the one that is there already, if it is confirmed.

        Raises:
            ApiError: it cannot be written.
        """
        async with self._changing:
            known = next((each for each in self.of_topic(topic) if each.endpoint == endpoint), None)
            if known is not None and known.is_confirmed:
                return known
            now, token = self._now(), secrets.token_hex(32)
            arn = f"{topic}:{uuid4()}" if known is None else known.arn
            made = Subscription(arn, topic, protocol, endpoint, now, token, is_raw, is_local)
            text = (
                f"You have chosen to subscribe to the topic {topic}.\n"
                f"To confirm the subscription, visit the SubscribeURL included in this message."
            )
            confirmation = Message(str(uuid4()), topic, now, CONFIRMATION, text, token=token)
            await self._file.put_subscription(made, confirmation)
            self._keep(made)
            self._deliveries.begin(made)
            return made

    async def confirm(self, topic: str, token: str) -> Subscription:
        """Confirm the subscription to which a token belongs.

        Raises:
            ApiError: there is none (``InvalidParameter``).
        """
        async with self._changing:
            for subscription in self.of_topic(topic):
                # confirming again is no error as long as its token is known
                if subscription.token and secrets.compare_digest(subscription.token, token):
                    confirmed = replace(subscription, token="")
                    await self._file.put_subscription(confirmed)
                    self._keep(confirmed)
                    self._deliveries.begin(confirmed)
                    return confirmed
        raise ApiError("InvalidParameter", "Invalid parameter: Token")

    async def change_subscription(self, subscription: Subscription) -> None:
        """Keep a subscription that has changed."""
        async with self._changing:
            await self._file.put_subscription(subscription)
            self._keep(subscription)
            self._deliveries.begin(subscription)

    async def unsubscribe(self, arn: str) -> None:
        """Remove a subscription; nothing if there is none."""
        async with self._changing:
            if arn in self.subscriptions:
                await self._remove([arn])

    # messages

    async def publish(
        self,
        scope: Scope,
        topic: str,
        text: str,
        message_id: str = "",
        subject: str = "",
        texts: Mapping[str, str] | None = None,
        attributes: Mapping[str, Mapping[str, str]] | None = None,
    ) -> str:
        """Publish a message, which is on disk when this returns; nothing is done if one of that id has been.

        Args:
            scope: the account and region for which it is published.
            topic: the topic's ARN.
            text: the message.
            message_id: its id; "" for a new one.
            subject: "" for none.
            texts: protocol → what is said in place of `text`.
            attributes: `MessageAttributes`.

        Returns:
            Its id.

        Raises:
            ApiError: the account has no such topic in this region, or the message cannot be written.
        """
        self.topic(topic, scope)
        message = Message(
            message_id or str(uuid4()),
            topic,
            self._now(),
            NOTIFICATION,
            text,
            subject,
            texts or {},
            attributes or {},
        )
        confirmed = [each.arn for each in self.of_topic(topic) if each.is_confirmed]
        is_new = not message_id or await self._file.is_new(message_id)
        if is_new:
            await self._file.publish(message, confirmed)
            self._unlogged.append(message)
            if self._logging is None:
                self._logging = tasks.start("writing the logs of topics", self._log_on())
            for arn in confirmed:
                self._deliveries.wake(arn)
        return message.id

    async def _log_on(self) -> None:
        """Have in their logs what is published, and what could not be written there before if `tidy` wants that."""
        try:
            may_be_there = self._is_log_behind
            if self._is_log_behind:
                self._is_log_behind = False
                await self._log(await self._file.unlogged(), may_be_there=True)
            while self._unlogged:
                messages, self._unlogged = list(self._unlogged), deque()
                await self._log(messages, may_be_there=may_be_there)
        except Exception:  # they are in the file, and the log has what nobody foresaw
            logger.exception("topics: messages are not in their logs yet")
            self._is_log_behind = True
        finally:
            self._logging = None

    async def _log(self, messages: Sequence[Message], *, may_be_there: bool) -> None:
        """Have messages in their logs."""
        try:
            await asyncio.to_thread(message_log.write, self._logs, messages, may_be_there=may_be_there)
            await self._file.logged(messages)
        except OSError as error:
            logger.error("messages cannot be written to the logs of topics yet: %s", error)
            self._is_log_behind = True
        except ApiError as error:
            logger.error("topics: %s", error.message)
            self._is_log_behind = True

    async def tidy(self) -> None:
        """Forget what is old: messages that have been delivered, and subscriptions that nobody has confirmed.

        Messages that could not be written to their logs are tried again.
        """
        now = self._now()
        if self._is_log_behind and self._logging is None:
            self._logging = tasks.start("writing the logs of topics", self._log_on())
        await self._file.forget_messages(now - _REMEMBERED_S)
        async with self._changing:
            late = [
                each.arn
                for each in self.subscriptions.values()
                if not each.is_confirmed and each.created < now - _CONFIRMED_WITHIN_S
            ]
            if late:
                await self._remove(late)
