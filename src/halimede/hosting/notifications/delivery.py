"""Messages go to the endpoints that subscribed, as SNS sends them: by HTTP POST, again and again until one is taken.

`Signature` and what belongs to it are left out: there is no certificate of Amazon's here.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson

from halimede.core import tasks
from halimede.hosting.errors import ApiError
from halimede.hosting.notifications.addresses import LoopbackSubscriptions, OwnAddressError, addresses_of
from halimede.hosting.notifications.records import Message, Subscription
from halimede.hosting.notifications.topic_file import Delivery, TopicFile
from halimede.http1.client import CallError, Exchange, RefusedError
from halimede.http1.upstream import UpstreamPool

logger = logging.getLogger("halimede")

PAGE = "/-/subscription"
"""The path of the URLs with which whoever gets a message confirms a subscription or ends it."""

CONFIRMATION = "SubscriptionConfirmation"
NOTIFICATION = "Notification"

_TIMEOUT_S = 15.0
_AT_A_TIME = 8
"""Of one subscription; one only while its endpoint takes none."""

_AGENT = "Amazon Simple Notification Service Agent"
_LONGEST_PAUSE_S = 60.0
_AGAIN_S = 1.0
"""After an error of the host itself."""

_TRY_AGAIN = (408, 429)
"""Statuses below 500 after which a message is sent once more; others say that it never will be taken."""


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """How messages are delivered.

    Attributes:
        attempts: how often at most (SNS: 53 within some 23 days, 50 within an hour for HTTP).
        pause_s: between the first two attempts, in seconds; twice as long each time, up to a minute.
    """

    attempts: int = 50
    pause_s: float = 1.0

    def pause_after(self, attempts: int) -> float:
        """How long to wait after so many attempts."""
        return min(self.pause_s * 2.0 ** min(attempts - 1, 16), _LONGEST_PAUSE_S)


Post = Callable[[str, Mapping[str, str], bytes, bool], Awaitable[int]]
"""Sends a body to a URL and returns the status; raises OSError or CallError.

The last argument says whether addresses of this machine alone may be reached.
"""


async def post(url: str, headers: Mapping[str, str], body: bytes, may_reach_own: bool) -> int:
    """Send a body to a URL. Redirections are not followed, and the response's body is not looked at.

    Raises:
        OwnAddressError: the name stands for an address of this machine alone, and that may not be reached.
        OSError: the name has no address, or no response came in time.
        CallError: no response came.
    """
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await _post(url, headers, body, may_reach_own)
    except TimeoutError:
        raise TimeoutError(f"it did not answer within {_TIMEOUT_S:g} seconds") from None


async def _post(url: str, headers: Mapping[str, str], body: bytes, may_reach_own: bool) -> int:
    parts = urlsplit(url)
    host, tls, port = parts.hostname or "", None, parts.port or 80
    if parts.scheme == "https":
        tls, port = await asyncio.to_thread(_tls), parts.port or 443
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    refused: RefusedError | None = None
    for address in await addresses_of(host, may_reach_own=may_reach_own):
        pool = UpstreamPool(
            address,
            port,
            address=parts.netloc.rpartition("@")[2],
            tls=tls,
            certified_name=None if tls is None else host,
        )
        try:
            async with Exchange(pool, "POST", target, headers, body) as response:
                return await response.begun()
        except RefusedError as error:
            refused = refused or error
        finally:
            pool.close()
    assert refused is not None, "a name that is found has an address"
    raise refused


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


class Deliveries:
    """Delivers. Lives on the event loop; each subscription has a task of its own."""

    def __init__(
        self,
        file: TopicFile,
        host_url: Callable[[], str],
        now: Callable[[], float],
        settings: DeliverySettings,
        send: Post,
        loopback: LoopbackSubscriptions,
    ) -> None:
        """Nothing is delivered before `begin`.

        Args:
            file: where deliveries are.
            host_url: where this host is reached.
            now: the time, in seconds since 1970.
            settings: how often, and when.
            send: sends.
            loopback: whose subscriptions may reach addresses of this machine alone.
        """
        self._file = file
        self._host_url = host_url
        self._now = now
        self._settings = settings
        self._send = send
        self._loopback = loopback
        self._subscriptions: dict[str, Subscription] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, subscription: Subscription) -> None:
        """Deliver to a subscription, which may have changed."""
        arn = subscription.arn
        self._subscriptions[arn] = subscription
        if arn not in self._tasks:
            self._wakes[arn] = asyncio.Event()
            self._tasks[arn] = tasks.start(f"delivering messages to {arn}", self._deliver(arn))
        self.wake(arn)

    def wake(self, arn: str) -> None:
        """There is something new for a subscription."""
        if arn in self._wakes:
            self._wakes[arn].set()

    def end(self, arn: str) -> None:
        """Deliver no more to a subscription."""
        self._subscriptions.pop(arn, None)
        self._wakes.pop(arn, None)
        task = self._tasks.pop(arn, None)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        """Deliver no more. What has not been delivered is when the host is started again."""
        await tasks.cancel(*self._tasks.values())

    async def _deliver(self, arn: str) -> None:
        wake = self._wakes[arn]
        limit = _AT_A_TIME
        while True:
            wake.clear()
            try:
                found = await self._file.deliveries(arn, limit)
                now = self._now()
                due = [each for each in found if each.due <= now]
                outcomes = await asyncio.gather(
                    *(self._try(arn, each) for each in due), return_exceptions=True
                )
                for outcome in outcomes:  # all of them are over: none is sent twice at a time
                    if isinstance(outcome, BaseException):
                        raise outcome
                if due:
                    limit = _AT_A_TIME if any(outcomes) else 1
                pause = None if not found else max(found[0].due - now, 0.0)
            except ApiError as error:
                logger.error("%s: %s", arn, error.message)
                due, pause = [], _AGAIN_S
            except Exception:  # of one subscription, and the log has what nobody foresaw
                logger.exception("%s: messages are not delivered yet", arn)
                due, pause = [], _AGAIN_S
            if due:
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await wake.wait()

    async def _try(self, arn: str, delivery: Delivery) -> bool:
        """Send a message once: whether the endpoint has taken it, or need not."""
        subscription = self._subscriptions.get(arn)
        message = delivery.message
        if subscription is None or (subscription.is_confirmed and message.kind == CONFIRMATION):
            await self._file.delivered(arn, message.id)
            return True
        headers, body = request_of(message, subscription, self._host_url())
        try:
            may_reach_own = self._loopback.permits(is_local=subscription.is_local)
            status = await self._send(subscription.endpoint, headers, body, may_reach_own)
            why = "" if 200 <= status < 300 else f"it answered with status {status}"
            is_final = 300 <= status < 500 and status not in _TRY_AGAIN
        except (OSError, CallError, ValueError) as error:
            why, is_final = str(error) or type(error).__name__, isinstance(error, OwnAddressError)
        attempts = delivery.attempts + 1
        if not why:
            await self._file.delivered(arn, message.id)
        elif is_final or attempts >= self._settings.attempts:
            logger.error(
                "message %s of %s is not delivered to %s, after %d attempts: %s",
                message.id, message.topic, subscription.endpoint, attempts, why,
            )  # fmt: skip
            await self._file.delivered(arn, message.id)
        else:
            logger.warning(
                "message %s of %s was not taken by %s: %s",
                message.id,
                message.topic,
                subscription.endpoint,
                why,
            )
            due = self._now() + self._settings.pause_after(attempts)
            await self._file.put_off(arn, message.id, attempts, due)
        return not why


def request_of(message: Message, subscription: Subscription, host_url: str) -> tuple[dict[str, str], bytes]:
    """Headers and body with which a subscription gets a message."""
    headers = {
        "x-amz-sns-message-type": message.kind,
        "x-amz-sns-message-id": message.id,
        "x-amz-sns-topic-arn": message.topic,
        "Content-Type": "text/plain; charset=UTF-8",
        "User-Agent": _AGENT,
    }
    text = message.texts.get(subscription.protocol, message.text)
    if message.kind != CONFIRMATION:
        headers["x-amz-sns-subscription-arn"] = subscription.arn
        if subscription.is_raw:
            headers["x-amz-sns-rawdelivery"] = "true"
            return headers, text.encode()
    return headers, orjson.dumps(_document(message, text, subscription, host_url), option=orjson.OPT_INDENT_2)


def _document(message: Message, text: str, subscription: Subscription, host_url: str) -> dict[str, Any]:
    document: dict[str, Any] = {"Type": message.kind, "MessageId": message.id}
    if message.kind == CONFIRMATION:
        document["Token"] = message.token
    document["TopicArn"] = message.topic
    if message.subject:
        document["Subject"] = message.subject
    document |= {"Message": text, "Timestamp": timestamp(message.published)}
    if message.kind == CONFIRMATION:
        query = {"Action": "ConfirmSubscription", "TopicArn": message.topic, "Token": message.token}
        document["SubscribeURL"] = f"{host_url}{PAGE}?{urlencode(query)}"
        return document
    if message.attributes:
        document["MessageAttributes"] = message.attributes
    query = {"Action": "Unsubscribe", "SubscriptionArn": subscription.arn}
    document["UnsubscribeURL"] = f"{host_url}{PAGE}?{urlencode(query)}"
    return document


def timestamp(when: float) -> str:
    """A time as SNS writes it."""
    moment = datetime.fromtimestamp(when, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
