"""The body of an inference request to tensors, which are views into it where they came as bytes."""

from math import prod
from typing import Final

from halimede.codec.json_sizes import is_large
from halimede.config.signature import Signature
from halimede.core.datatypes import BYTES
from halimede.core.errors import HalimedeError, InvalidArgumentError
from halimede.core.memo import Memo
from halimede.core.requests import request_prefix
from halimede.core.tensors import Tensor
from halimede.frontends.http.codec.request_plan import OutputPlan, RequestPlan, read_plan
from halimede.frontends.http.json_limit import call_too_large, inference_too_large

MEMO_BYTES: Final = 4096
"""JSON up to this size is remembered together with its plan."""

_INT_MAX: Final = (1 << 31) - 1
_LENGTH_DIGITS: Final = 20

# Clients repeat their JSON but for the identifier, which they write first; this one is taken off if it is plain.
_LEADING_ID: Final = b'{"id":"'
_ID_START: Final = len(_LEADING_ID)

Decoded = tuple[RequestPlan, str, dict[str, Tensor]]
"""Plan, identifier, and inputs by name."""


class RequestDecoder:
    """Decodes requests, and remembers the JSON that it read last.

    Args:
        max_input_size: largest JSON, JSON tensor or raw input, in bytes.
    """

    def __init__(self, max_input_size: int) -> None:
        self._max_input_size = max_input_size
        self._memo_bytes = min(MEMO_BYTES, max_input_size)
        self._plans = Memo(self._read_memoized)
        self._raw_plan = RequestPlan()
        self._raw_plan.unlisted = OutputPlan(binary=True)

    def large_json(self, body: memoryview, header_length: str | None) -> memoryview | None:
        """The JSON of a body if it should be read elsewhere, by `read_plan`; `decode` then takes what that gives.

        Raises:
            HalimedeError: as of `decode`.
        """
        if header_length == "0":
            return None
        length = len(body) if header_length is None else _json_length(header_length, len(body))
        if not is_large(body[:length]):
            return None
        self._check_size("Request JSON", length)
        return body[:length]

    def decode(
        self,
        body: memoryview,
        header_length: str | None,
        model: str,
        signature: Signature,
        plan: RequestPlan | None = None,
    ) -> Decoded:
        """What a body holds: JSON alone, JSON followed by bytes, or bytes alone.

        Args:
            body: the whole body, decompressed.
            header_length: the digits that say how many bytes of JSON there are, 0 for a raw request; None if
                there is nothing else.
            model: the model's name, for error texts.
            signature: of the model.
            plan: what its JSON says, if that was read already.

        Raises:
            HalimedeError: it is not what the protocol describes.
        """
        available = len(body)
        if header_length is None:
            length = available
        elif header_length == "0":
            return self._raw_plan, "", self._decode_raw(body, model, signature)
        else:
            length = _json_length(header_length, available)
        identifier = ""
        if plan is not None:
            pass
        elif length <= self._memo_bytes:
            plan, identifier = self._memoized_plan(bytes(body[:length]))
        else:
            self._check_size("Request JSON", length)
            plan = self._read(body[:length])
        if length + plan.binary_bytes != available:
            raise _wrong_size(plan, available - length, model)
        inputs = {}
        for name, datatype, shape, start, end, tensor in plan.inputs:
            if tensor is None:
                tensor = Tensor(datatype, shape, body[length + start : length + end])
            inputs[name] = tensor
        return plan, plan.id or identifier, inputs

    def _memoized_plan(self, text: bytes) -> tuple[RequestPlan, str]:
        """The plan of short JSON, and the identifier that was taken off its front."""
        identifier, rest = split_id(text)
        if not identifier:
            return self._plans[text], ""
        try:
            return self._plans[rest], identifier.decode()
        except HalimedeError:
            return self._read(text), ""  # or what is wrong with the whole of it

    def _read_memoized(self, text: bytes) -> RequestPlan:
        """The plan of JSON that is whole, or begins at the quote that ends the leading identifier."""
        return self._read(b"{" + text[2:] if text.startswith(b'",') else text)

    def _read(self, text: bytes | memoryview) -> RequestPlan:
        return read_plan(text, self._max_input_size)

    def _check_size(self, what: str, size: int) -> None:
        if size > self._max_input_size:
            raise InvalidArgumentError(inference_too_large(size, self._max_input_size, what))

    def _decode_raw(self, body: memoryview, model: str, signature: Signature) -> dict[str, Tensor]:
        """The only input, whose shape follows from the number of bytes."""
        self._check_size("Raw request", len(body))
        if len(signature.inputs) != 1:
            raise _invalid_raw(
                f"Raw request must only have 1 input (found 1) to be deduced but got {len(signature.inputs)} "
                f"inputs in '{model}' model configuration"
            )
        (spec,) = signature.inputs.values()
        batch = (1,) if signature.max_batch_size > 0 else ()
        if spec.dims.count(-1) > 1:
            raise _invalid_raw(
                f"The shape of the raw input '{spec.name}' can not be deduced because there are more than one "
                f"variable-sized dimension"
            )
        if spec.datatype is BYTES:
            if spec.dims != (1,):
                raise _invalid_raw(
                    f"For BYTE datatype raw input '{spec.name}', the model must have input shape [1]"
                )
            element = len(body).to_bytes(4, "little") + bytes(body)
            return {spec.name: Tensor(BYTES, (*batch, 1), element)}
        fixed = spec.datatype.itemsize
        for dim in spec.dims:
            fixed *= dim if dim != -1 else 1
        variable = len(body) // fixed if fixed else 0
        shape = tuple(variable if dim == -1 else dim for dim in spec.dims)
        expected = prod(shape) * spec.datatype.itemsize
        if len(body) != expected:
            raise _invalid_raw(
                f"input byte size mismatch for input 'raw_input' for model '{model}'. "
                f"Expected {expected}, got {len(body)}"
            )
        return {spec.name: Tensor(spec.datatype, batch + shape, body)}


def split_id(text: bytes) -> tuple[bytes, bytes]:
    """A plain identifier at the front of a request's JSON, and the rest, from the quote that ends it; b"" for none."""
    if text.startswith(_LEADING_ID):
        end = text.find(b'"', _ID_START)
        identifier = text[_ID_START:end]
        if identifier.isalnum():
            return identifier, text[end:]
    return b"", text


def too_large(size: int, allowed: int) -> InvalidArgumentError:
    """The error for the JSON of any call but inference above the limit."""
    return InvalidArgumentError(call_too_large(size, allowed))


def _json_length(header_length: str, available: int) -> int:
    if not header_length.removeprefix("-").isdecimal():
        msg = f"Unable to parse Inference-Header-Content-Length, got: {header_length}"
        raise InvalidArgumentError(msg)
    length = int(header_length) if len(header_length) <= _LENGTH_DIGITS else available + 1
    if not 0 < length <= available or length > _INT_MAX:
        msg = f"inference header size should be in range (0, {available}), got: {header_length[:32]}"
        raise InvalidArgumentError(msg)
    return length


def _invalid_raw(text: str) -> InvalidArgumentError:
    """The error for a raw request, which has no identifier."""
    return InvalidArgumentError(request_prefix("") + text)


def _wrong_size(plan: RequestPlan, available: int, model: str) -> InvalidArgumentError:
    """Why the binary section does not hold what the JSON says."""
    for name, _, _, start, end, _ in plan.inputs:
        if end > available:
            missing = end - max(start, available)
            return InvalidArgumentError(
                f"unexpected size for input '{name}', expecting {missing} additional bytes for model '{model}'"
            )
    return InvalidArgumentError(f"unexpected additional input data for model '{model}'")
