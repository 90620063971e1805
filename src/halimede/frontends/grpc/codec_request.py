"""From the bytes of a ModelInferRequest to its plan and its tensors.

A client sends the same names, shapes and parameters again and again, and only tensors and ids change. So what is
left of a message without them is decoded once into a plan, which is remembered under those very bytes.
"""

import asyncio
import logging
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeVar

from google.protobuf.message import DecodeError

from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError
from halimede.core.tensors import Buffer
from halimede.frontends.decoders import Decoders
from halimede.frontends.grpc.codec_plan import RequestPlan
from halimede.frontends.grpc.codec_wire import RAW, field_head, joined, split_request, total_length
from halimede.frontends.grpc.kserve_pb2 import ModelInferRequest
from halimede.frontends.request_bounds import check_count

logger = logging.getLogger("halimede")

K = TypeVar("K")
V = TypeVar("V")

Decoded = tuple[RequestPlan, str, list[memoryview]]
"""A request's plan, its id and its raw tensors."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """A message that is being decoded elsewhere.

    Attributes:
        work: gives what it says, without what is known already.
        known: its id and its raw tensors; None if the work finds them, too.
    """

    work: "asyncio.Future[Decoded]"
    known: tuple[str, list[memoryview]] | None

    @property
    def identifier(self) -> str:
        """The message's id as far as it is known without the work."""
        return "" if self.known is None else self.known[0]

    def result(self) -> Decoded:
        """What the message says, once the work is done.

        Raises:
            HalimedeError: it is no valid message, or the process that decoded it ended.
        """
        try:
            decoded = self.work.result()
        except HalimedeError:
            raise
        except Exception:  # in a callback of the loop, nobody else would answer
            logger.exception("A message could not be decoded")
            raise InternalError("the server failed to decode the message; its log has the details") from None
        return decoded if self.known is None else (decoded[0], *self.known)


LARGE: Final = 131_072
"""Bytes of a message, raw tensors left out, that take about 4 ms to decode; more of them are decoded elsewhere."""

_MAX_PLANS: Final = 256
_NOT_RAW: Final = b"\0"  # no message begins with it
_MAX_PLAN_BYTES: Final = 4096  # a longer message carries its tensors outside raw_input_contents


class _Template:
    """A message as it came, but for the contents of its tensors.

    Attributes:
        plan: what it says.
        length: its length.
        spans: (start, end) of each tensor.
        gaps: (start, end, bytes) of what stands between one tensor and the next.
    """

    __slots__ = ("gaps", "length", "plan", "spans")

    def __init__(self, plan: RequestPlan, message: memoryview, spans: list[tuple[int, int]]) -> None:
        self.plan = plan
        self.length = len(message)
        self.spans = spans
        self.gaps = [(end, start, bytes(message[end:start])) for (_, end), (start, _) in pairwise(spans)]

    def tensors(self, message: memoryview) -> list[memoryview] | None:
        """Views on the tensors of a message with the same beginning; None if it differs further on."""
        if len(message) != self.length:
            return None
        for start, end, gap in self.gaps:
            if message[start:end] != gap:
                return None
        return [message[start:end] for start, end in self.spans]


class RequestDecoder:
    """Turns messages into plans and tensors.

    Remembers the last few hundred plans under the bytes that they were decoded from; and, of messages without
    id, where the tensors lie, under all bytes up to the first tensor, so that most messages are not even walked.

    Args:
        decoders: decode large messages; None to decode them here.
    """

    def __init__(self, decoders: Decoders | None = None) -> None:
        self._decoders = decoders
        self._plans: dict[bytes, RequestPlan] = {}
        self._templates: dict[bytes, _Template] = {}
        self._starts: dict[
            int, int
        ] = {}  # message length → where the first tensor starts in the last such one

    def decode(self, message: memoryview) -> Decoded | Decoding:
        """The request's plan, its id and its raw tensors, which are views on `message`; or what will give them.

        Raises:
            InvalidArgumentError: no valid message, or one that contradicts itself.
        """
        start = self._starts.get(len(message))
        if start is not None:
            template = self._templates.get(bytes(message[:start]))
            if template is not None:
                tensors = template.tensors(message)
                if tensors is not None:
                    return template.plan, "", tensors
        return self._decode_anew(message)

    def _decode_anew(self, message: memoryview) -> Decoded | Decoding:
        decoders = self._decoders
        split = split_request(message)
        if split is None:
            if len(message) > LARGE and decoders is not None:
                return Decoding(decoders.decode(decode_whole, message), None)
            return decode_whole(message)
        pieces, encoded_id, spans = split
        tensors = [message[start:end] for start, end in spans]
        try:
            identifier = encoded_id.decode()
        except UnicodeDecodeError:
            raise _malformed() from None
        if len(message) > LARGE and decoders is not None and total_length(pieces) > LARGE:
            work = (  # neither copies what is large
                decoders.decode(decode_whole, pieces[0], bool(spans))
                if len(pieces) == 1
                else decoders.decode(decode_pieces, message)
            )
            return Decoding(work, (identifier, tensors))
        described = joined(pieces)
        if len(described) > _MAX_PLAN_BYTES:
            plan = RequestPlan(_parse(described), raw=bool(spans))
        else:
            plan = self._remembered(described, raw=bool(spans))
            if spans and not encoded_id:
                self._memoize_template(described, message, spans, plan)
        return plan, identifier, tensors

    def _remembered(self, described: bytes, *, raw: bool) -> RequestPlan:
        """The plan of a message without id and tensors; remembered unless the message has its tensors elsewhere."""
        key = described if raw else _NOT_RAW + described
        plan = self._plans.get(key)
        if plan is None:
            plan = RequestPlan(_parse(described), raw=raw)
            if raw or (plan.places is not None and len(plan.places.inputs) == len(plan.inputs)):
                _memoize(self._plans, key, plan)
        return plan

    def _memoize_template(
        self, described: bytes, message: memoryview, spans: list[tuple[int, int]], plan: RequestPlan
    ) -> None:
        """Remember the message if its tensors are all that follows the bytes `described`."""
        start, end = spans[0]
        if start - len(field_head(RAW, end - start)) == len(described) and spans[-1][1] == len(message):
            _memoize(self._templates, bytes(message[:start]), _Template(plan, message, spans))
            _memoize(self._starts, len(message), start)


def read_id(message: memoryview) -> str:
    """The id of a request that could not be decoded; "" if it has none that can be read."""
    try:
        split = split_request(message)
    except InvalidArgumentError:
        return ""
    return "" if split is None else split[1].decode(errors="replace")


def _memoize(memory: dict[K, V], key: K, value: V) -> None:
    """Put it there in place of the oldest, if it would be one too many."""
    if len(memory) >= _MAX_PLANS and key not in memory:
        del memory[next(iter(memory))]
    memory[key] = value


def decode_whole(message: Buffer, raw: bool = False) -> Decoded:
    """The same by protobuf alone: for messages that no usual client sends, and for those decoded elsewhere.

    Args:
        message: the message.
        raw: whether it has raw tensors that were left out.

    Raises:
        InvalidArgumentError: as of `RequestDecoder.decode`.
    """
    parsed = _parse(bytes(message))
    check_count("raw tensors", len(parsed.raw_input_contents))
    tensors = [memoryview(content) for content in parsed.raw_input_contents]
    return RequestPlan(parsed, raw=raw or bool(tensors)), parsed.id, tensors


def decode_pieces(message: Buffer) -> Decoded:
    """The same without id and raw tensors, for messages in which these lie between what is large.

    Raises:
        InvalidArgumentError: as of `RequestDecoder.decode`.
    """
    split = split_request(memoryview(message))
    assert split is not None, "it was split before"
    pieces, _, spans = split
    return decode_whole(joined(pieces), bool(spans))


def _parse(encoded: bytes) -> ModelInferRequest:
    try:
        return ModelInferRequest.FromString(encoded)
    except DecodeError:
        raise _malformed() from None


def _malformed() -> InvalidArgumentError:
    return InvalidArgumentError("Unable to parse request: it is not a valid ModelInferRequest message")
