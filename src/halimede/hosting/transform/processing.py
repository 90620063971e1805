"""Selects what of each record the model gets, and what of its answer and the record is written (`DataProcessing`)."""

import csv
import io
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import orjson

from halimede.core.media_types import essence
from halimede.hosting.errors import invalid
from halimede.hosting.transform.failures import client_error
from halimede.hosting.transform.paths import Filter


class Format(Enum):
    """How records are written."""

    CSV = "CSV"
    JSON = "JSON"
    JSON_LINES = "JSON Lines"


_FORMATS = {
    "text/csv": Format.CSV,
    "application/json": Format.JSON,
    "application/jsonlines": Format.JSON_LINES,
    "application/x-jsonlines": Format.JSON_LINES,
}


class Processing:
    """What is done to records before and after the model has them."""

    def __init__(
        self, into: Format, out: Format, before: Filter, after: Filter, *, joins: bool, by_record: bool
    ) -> None:
        self._into = into
        self._out = out
        self._before = before
        self._after = after
        self._joins = joins
        self._by_record = by_record or into is not Format.JSON

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> "Processing | None":
        """What a job asks for; None if records go to the model, and its answers to the output, as they are.

        Raises:
            ApiError: that is not possible.
        """
        asked = request.get("DataProcessing", {})
        before = Filter("InputFilter", asked.get("InputFilter", "$"))
        after = Filter("OutputFilter", asked.get("OutputFilter", "$"))
        joins = asked.get("JoinSource", "None") == "Input"
        if before.is_all and after.is_all and not joins:
            return None
        split = request["TransformInput"].get("SplitType", "None")
        if split not in ("None", "Line"):
            raise invalid(f"DataProcessing is for records that are lines or whole objects, not {split}")
        content_type = request["TransformInput"].get("ContentType", "")
        into = _format(content_type, "TransformInput.ContentType")
        out = _format(request["TransformOutput"].get("Accept", "") or content_type, "TransformOutput.Accept")
        if joins and (into is Format.CSV) is not (out is Format.CSV):
            msg = f"DataProcessing.JoinSource: records in {into.value} cannot be joined with answers in {out.value}"
            raise invalid(f"{msg}; ContentType and Accept have to be both CSV, or both JSON")
        return cls(into, out, before, after, joins=joins, by_record=split == "Line")

    def records(self, content: bytes) -> list[bytes]:
        """The records of an object that is not split."""
        return _lines(content) if self._by_record else [content]

    def before(self, record: bytes) -> bytes:
        """What the model gets of a record.

        Raises:
            TransformError: the record is not of its format, or the filter selects nothing of it.
        """
        if self._before.is_all:
            return record
        return _dump(self._into, self._before.select(_load(self._into, record, "a record")))

    def after(self, records: Sequence[bytes], answer: bytes) -> bytes:
        """What is written for some records and the model's answer to them.

        Raises:
            TransformError: the answer is not of its format, or has another number of records.
        """
        answers = self._answers(len(records), answer)
        written = [
            self._one(record, each) + (b"\n" if self._by_record else b"")
            for record, each in zip(records, answers, strict=True)
        ]
        return b"".join(written)

    def _one(self, record: bytes, answer: Any) -> bytes:
        if self._joins:
            given = _load(self._into, record, "a record")
            if self._out is Format.CSV:
                answer = [*given, *answer]
            elif isinstance(given, dict):
                answer = {**given, "SageMakerOutput": answer}
            else:
                answer = {"SageMakerInput": given, "SageMakerOutput": answer}
        return _dump(self._out, self._after.select(answer))

    def _answers(self, count: int, answer: bytes) -> list[Any]:
        """What the model has answered to each of so many records."""
        what = "the model's answer"
        if self._out is Format.JSON:
            whole = _whole(answer) if count > 1 else [_load(self._out, answer, what)]
            if len(whole) == count:
                return whole
        found = _lines(answer)
        if len(found) == count:
            return [_load(self._out, each, what) for each in found]
        raise client_error(
            f"the model's answer has {len(found)} lines for {count} records; DataProcessing needs one for each"
        )


def _format(content_type: str, member: str) -> Format:
    found = _FORMATS.get(essence(content_type))
    if found is None:
        raise invalid(
            f"DataProcessing needs {member} to be one of {', '.join(_FORMATS)}, not '{content_type}'"
        )
    return found


def _whole(answer: bytes) -> list[Any]:
    """The entries of a list in JSON; none if it is something else."""
    try:
        found = orjson.loads(answer)
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _lines(content: bytes) -> list[bytes]:
    return [line for line in content.splitlines() if line]


def _load(form: Format, text: bytes, what: str) -> Any:
    try:
        if form is Format.CSV:
            return next(csv.reader([text.decode()]), [])
        return orjson.loads(text)
    except (ValueError, csv.Error) as error:
        shown = text[:64].decode(errors="replace")
        raise client_error(f"{what} is no {form.value}: {error}: {shown!r}") from None


def _dump(form: Format, value: Any) -> bytes:
    if form is not Format.CSV:
        return orjson.dumps(value)
    cells = value if isinstance(value, list) else [value]
    row = io.StringIO()
    csv.writer(row, lineterminator="").writerow(cells)
    return row.getvalue().encode()
