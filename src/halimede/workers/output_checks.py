"""What Python models answer, held against their configuration.

As in Triton, outputs are sent as the model made them. But one that does not fit the configuration is a mistake that
would otherwise show where nobody looks for it, such as in the next model of an ensemble.
"""

import logging
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Final

from halimede.config.signature import Signature, TensorSpec
from halimede.core.errors import InternalError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.workers.encoding import dropped_outputs
from halimede.workers.memory import Encoded

logger = logging.getLogger("halimede")

STRICT: Final = "strict"
"""The parameter of a model whose mismatches are errors."""

_MAX_FITTING: Final = 4096


class Mismatch(Enum):
    """How an output can contradict the configuration."""

    SHAPE = "shape"
    DATATYPE = "datatype"
    ROWS = "rows"
    MISSING = "missing"
    UNKNOWN = "unknown"


class OutputChecks:
    """Checks the responses of one model, whose instances share it. Lives on the event loop.

    The first mismatch of each kind is logged.

    Args:
        model: its name.
        signature: what it takes and gives.
        strict: each mismatch fails its request.
    """

    def __init__(self, model: str, signature: Signature, *, strict: bool) -> None:
        self._model = model
        self._signature = signature
        self._lead = int(signature.max_batch_size > 0)
        self._all = tuple(signature.outputs)
        self._strict = strict
        self._fitting: set[tuple[str, int, tuple[int, ...], int]] = set()
        self._logged: set[Mismatch] = set()

    def fits(self, request: InferRequest, outputs: Sequence[Encoded]) -> bool:
        """Whether outputs, as the worker sent them, are known to fit, as most are: `apply` would change nothing."""
        if len(outputs) < len(request.outputs or self._all):
            return False
        rows, fitting = request.batch_size, self._fitting
        for each in outputs:  # noqa: SIM110 - half as long for the few that there are
            if (each[0], each[1], each[2], rows) not in fitting:
                return False
        return True

    def apply(
        self, request: InferRequest, encoded: tuple[Any, ...], response: InferResponse
    ) -> InferResponse:
        """The response, or the error in place of one that is refused.

        A model that leaves out an output that the client asked for fails the request, unless it is decoupled: its
        responses may have different outputs.

        Args:
            request: what it answers.
            encoded: the response as the worker sent it.
            response: the same, decoded, with the shapes that the model gave.
        """
        if response.error is not None:
            return response
        for kind, text in self._mismatches(request, encoded, response):
            refused = self._strict or (kind is Mismatch.MISSING and bool(request.outputs))
            if kind not in self._logged:
                self._logged.add(kind)
                hint = "" if refused else f"; the parameter '{STRICT}' makes this an error"
                logger.warning("model '%s': %s (further cases are not logged%s)", self._model, text, hint)
            if refused:
                return InferResponse(error=InternalError(f"model '{self._model}': {text}"))
        return response

    def _mismatches(
        self, request: InferRequest, encoded: tuple[Any, ...], response: InferResponse
    ) -> Iterator[tuple[Mismatch, str]]:
        for name, tensor in response.tensors():
            fits = True
            for difference in self._differences(self._signature.outputs[name], tensor, request.batch_size):
                fits = False
                yield difference
            if fits and len(self._fitting) < _MAX_FITTING:
                self._fitting.add((name, tensor.datatype.number, tensor.shape, request.batch_size))
        for name in dropped_outputs(encoded):
            if name not in self._signature.backend_outputs:
                yield (
                    Mismatch.UNKNOWN,
                    f"its response has an output '{name}', which its configuration does not list; it is dropped",
                )
        if self._signature.decoupled:
            return
        for name in request.outputs or self._all:
            if name not in response.outputs:
                given = ", ".join(f"'{each}'" for each in response.outputs) or "none"
                yield (
                    Mismatch.MISSING,
                    f"its response lacks the output '{name}'; the outputs that it has: {given}",
                )

    def _differences(self, spec: TensorSpec, tensor: Tensor, rows: int) -> Iterator[tuple[Mismatch, str]]:
        """What is wrong with an output."""
        output, shape = f"its output '{spec.name}'", tensor.shape
        if tensor.datatype is not spec.datatype:
            yield (
                Mismatch.DATATYPE,
                f"{output} is {tensor.datatype.config_name}, but the configuration says {spec.datatype.config_name}",
            )
        if spec.name in self._signature.scattered:
            return  # it is as large as an input
        row, dims = shape[self._lead :], spec.backend_dims
        fits = len(shape) == self._lead + len(dims) and all(
            dim in (-1, size) for dim, size in zip(dims, row, strict=True)
        )
        if not fits:
            full = [-1, *dims] if self._lead else list(dims)
            yield Mismatch.SHAPE, f"{output} has shape {list(shape)}, but the configuration says {full}"
        elif self._lead and shape[0] != rows:
            yield Mismatch.ROWS, f"{output} has {shape[0]} rows in the response to a request of {rows}"
