"""Records of captured invocations, one a line, as SageMaker writes them.

{"captureData": {"endpointInput": {"observedContentType": …, "mode": "INPUT", "data": …, "encoding": …},
"endpointOutput": {… "mode": "OUTPUT" …}},
"eventMetadata": {"eventId": …, "inferenceTime": …, …}, "eventVersion": "0"}
"""

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from halimede.core.tensors import Array
from halimede.hosting.capture.payloads import Values, decode_values

CSV: Final = "CSV"
JSON: Final = "JSON"
BASE64: Final = "BASE64"

_VERSION: Final = "0"


@dataclass(frozen=True, slots=True)
class Payload:
    """The body of a request or of its response.

    Attributes:
        body: the bytes, as they were sent.
        content_type: what the sender called them, "" for nothing.
        encoding: how the record has them: ``CSV`` and ``JSON`` as text, ``BASE64`` for anything else.
    """

    body: bytes
    content_type: str = ""
    encoding: str = BASE64

    def tensors(self) -> dict[str, Array]:
        """The arrays that the body holds, by name.

        KServe's tensors, JSON or binary, have their own names, datatypes and shapes (BF16 as float32; BYTES as objects
        of type `bytes`). Columns of CSV are called ``_c0``, ``_c1``, …; members of other JSON ``a.b``, where an array
        of objects has an array for each member. Texts are objects of type `str`, None where one is missing; missing
        numbers are NaN.

        Raises:
            UndecodableError: the body holds none of that, or is damaged.
        """
        return {name: values.array for name, values in self.values().items()}

    def values(self) -> dict[str, Values]:
        """As `tensors`, each with KServe's name of its datatype.

        Raises:
            UndecodableError: as of `tensors`.
        """
        return decode_values(self.body, self.content_type, self.encoding)


@dataclass(frozen=True, slots=True)
class CaptureRecord:
    """A captured invocation.

    Attributes:
        event_id: its own, no other invocation has it.
        time: when it was answered, to the second.
        input: the request, None if it was not captured.
        output: the response, None if it was not captured.
        inference_id: what the client called it (`InferenceId`), "" for nothing.
        custom_attributes: what the client sent with it (`CustomAttributes`).
        target_model: (multi-model) the model that was asked, "" for none.
        source: why it was made, "" for a client's own; ``ShadowExperiment`` for a copy.
    """

    event_id: str
    time: datetime
    input: Payload | None = None
    output: Payload | None = None
    inference_id: str = ""
    custom_attributes: Sequence[str] = ()
    target_model: str = ""
    source: str = ""


Unreadable = Callable[[int, str], None]
"""Is told of a line that is no record: its number, from 1, and what is wrong with it."""


def read_records(
    lines: Iterable[str | bytes], unreadable: Unreadable | None = None
) -> Iterator[CaptureRecord]:
    """The records of a captured file, such as an open one.

    Args:
        lines: its lines; empty ones are passed over.
        unreadable: is told of each line that is no record, such as one that was cut off; the others are read.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = _read(line)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            if unreadable is not None:
                unreadable(number, _reason(error))
        else:
            yield record


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no member {error}"
    return str(error)


def _read(line: str | bytes) -> CaptureRecord:
    document = orjson.loads(line)
    if not isinstance(document, dict):
        raise TypeError("it is no object")
    data, about = document["captureData"], document["eventMetadata"]
    return CaptureRecord(
        about["eventId"],
        datetime.fromisoformat(about["inferenceTime"]),
        _payload(data.get("endpointInput")),
        _payload(data.get("endpointOutput")),
        about.get("inferenceId", ""),
        tuple(about.get("customAttributes", ())),
        about.get("targetModel", ""),
        about.get("invocationSource", ""),
    )


def _payload(document: Mapping[str, Any] | None) -> Payload | None:
    if document is None:
        return None
    data, encoding = document["data"], document["encoding"]
    try:
        body = base64.b64decode(data, validate=True) if encoding == BASE64 else data.encode()
    except (binascii.Error, AttributeError) as error:
        msg = f"its data are not {encoding}: {error}"
        raise ValueError(msg) from None
    return Payload(body, document.get("observedContentType") or "", encoding)


def write_record(record: CaptureRecord) -> bytes:
    """The record as a line, with its end.

    A body that is to be text, but is not, is written as BASE64: what was sent can be read back to the byte.
    """
    data = {}
    for member, mode, payload in (
        ("endpointInput", "INPUT", record.input),
        ("endpointOutput", "OUTPUT", record.output),
    ):
        if payload is not None:
            data[member] = _payload_document(mode, payload)
    about: dict[str, Any] = {"eventId": record.event_id}
    if record.inference_id:
        about["inferenceId"] = record.inference_id
    if record.custom_attributes:
        about["customAttributes"] = list(record.custom_attributes)
    if record.target_model:
        about["targetModel"] = record.target_model
    if record.source:
        about["invocationSource"] = record.source
    about["inferenceTime"] = record.time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {"captureData": data, "eventMetadata": about, "eventVersion": _VERSION}
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def _payload_document(mode: str, payload: Payload) -> dict[str, str]:
    text, encoding = "", payload.encoding
    if encoding != BASE64:
        try:
            text = payload.body.decode()
        except UnicodeDecodeError:
            encoding = BASE64
    if encoding == BASE64:
        text = base64.b64encode(payload.body).decode("ascii")
    return {
        "observedContentType": payload.content_type,
        "mode": mode,
        "data": text,
        "encoding": encoding,
    }
