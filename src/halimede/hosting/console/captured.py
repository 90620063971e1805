"""The invocations of an endpoint that were captured last, as one document.

    {"where": "s3://…", "records": [{"time", "variant", "event_id", "inference_id", "target_model", "source",
                                     "request": PAYLOAD or null, "response": likewise}, ...], the latest first}

A PAYLOAD is {"content_type", "bytes": how many, "text": what it says, null if it is no text or longer than 64 KiB}.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from halimede.hosting.capture.records import CaptureRecord, Payload, read_records
from halimede.hosting.console.visitor import Visitor
from halimede.hosting.control.controller import Controller
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.store.objects import Objects

Document = dict[str, Any]

_RECORDS: Final = 20
_HOURS: Final = 24
"""So far back records are looked for."""

_FILE_BYTES: Final = 16 << 20
"""Larger files are passed over."""

_TEXT_BYTES: Final = 64 << 10


class CapturedInvocations:
    """The captured invocations of the endpoint that a visitor asks for.

    Args:
        controller: the endpoints.
        objects_of: what an account may read.
        visitor: who asks.

    Raises:
        ApiError: they name no endpoint, or may not read its records.
    """

    def __init__(
        self, controller: Controller, objects_of: Callable[[str], Objects], visitor: Visitor
    ) -> None:
        self._endpoint = visitor.endpoint
        visitor.check("sagemaker:DescribeEndpoint", self._endpoint)
        for action in ("s3:ListBucket", "s3:GetObject"):
            visitor.check(action)
        self._controller = controller
        self._caller = visitor.caller
        self._objects = objects_of(visitor.caller.account)

    async def take(self) -> Document:
        """The document as of now.

        Raises:
            ApiError: there is no such endpoint, it captures nothing, or the records cannot be read.
        """
        described = self._described()
        config = described.get("DataCaptureConfig")
        if config is None:
            raise invalid(
                f"endpoint '{self._endpoint}' captures nothing; its configuration has no DataCaptureConfig"
            )
        variants = [
            each["VariantName"]
            for member in ("ProductionVariants", "ShadowProductionVariants")
            for each in described.get(member, ())
        ]
        where = f"{config['DestinationS3Uri'].rstrip('/')}/{self._endpoint}"
        now = datetime.now(UTC)
        found: list[Document] = []
        for hours in range(_HOURS):
            hour = f"{now - timedelta(hours=hours):%Y/%m/%d/%H}"
            for variant in variants:
                found += await self._of_hour(f"{where}/{variant}/{hour}/", variant)
            if len(found) >= _RECORDS:
                break
        found.sort(key=lambda each: each["time"], reverse=True)
        return {"where": where, "records": found[:_RECORDS]}

    def _described(self) -> Document:
        for each in self._controller.describe_all(self._caller):
            if each["EndpointName"] == self._endpoint:
                return each
        raise ApiError("ResourceNotFound", f"there is no endpoint '{self._endpoint}'", 404)

    async def _of_hour(self, prefix: str, variant: str) -> list[Document]:
        """The last records of a variant and an hour."""
        found: list[Document] = []
        for file in reversed(await self._objects.list(prefix)):
            if file.size <= _FILE_BYTES:
                content = await self._objects.read(file.url, _FILE_BYTES)
                found += await asyncio.to_thread(lambda data: list(_last(data, variant)), content)
            if len(found) >= _RECORDS:
                break
        return found


def _last(content: bytes, variant: str) -> Iterator[Document]:
    """The last records of a file."""
    for record in read_records(content.splitlines()[-_RECORDS:]):
        yield _document(record, variant)


def _document(record: CaptureRecord, variant: str) -> Document:
    return {
        "time": record.time.timestamp(),
        "variant": variant,
        "event_id": record.event_id,
        "inference_id": record.inference_id,
        "target_model": record.target_model,
        "source": record.source,
        "request": _payload(record.input),
        "response": _payload(record.output),
    }


def _payload(payload: Payload | None) -> Document | None:
    if payload is None:
        return None
    text = None
    if len(payload.body) <= _TEXT_BYTES:
        try:
            text = payload.body.decode()
        except UnicodeDecodeError:
            text = None
    return {"content_type": payload.content_type, "bytes": len(payload.body), "text": text}
