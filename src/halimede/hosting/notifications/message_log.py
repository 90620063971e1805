"""The log of a topic: a line of JSON for each message, ``DIRECTORY/ACCOUNT/REGION/TOPIC.log``. Blocks; one thread."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import orjson

from halimede.hosting.metering.log_space import bound
from halimede.hosting.notifications.delivery import timestamp
from halimede.hosting.notifications.records import Message, scope_of

_LOG_BYTES = 100 << 20
"""The oldest lines go when a log takes more."""

_TAIL_BYTES = 8 << 20


def write(directory: Path, messages: Sequence[Message], *, may_be_there: bool) -> None:
    """Append messages to their logs.

    Args:
        directory: where the logs are.
        messages: in order.
        may_be_there: another process may have done so before it was ended, so that some are there already.

    Raises:
        OSError: a log cannot be written.
    """
    of: defaultdict[Path, list[Message]] = defaultdict(list)
    for message in messages:
        of[log_of(directory, message.topic)].append(message)
    for log, new in of.items():
        log.parent.mkdir(parents=True, exist_ok=True)
        known = _tail(log) if may_be_there else b""
        lines = [_line(message) for message in new if message.id.encode() not in known]
        with log.open("ab") as file:
            file.write(b"".join(lines))
    bound(of, _LOG_BYTES)


def log_of(directory: Path, topic: str) -> Path:
    """Where the log of a topic is."""
    return scope_of(topic).directory(directory) / f"{topic.rpartition(':')[2]}.log"


def _tail(log: Path) -> bytes:
    with suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return file.read()
    return b""


def _line(message: Message) -> bytes:
    line = {"Timestamp": timestamp(message.published), "MessageId": message.id, "TopicArn": message.topic}
    if message.subject:
        line["Subject"] = message.subject
    return orjson.dumps({**line, "Message": message.text}) + b"\n"
