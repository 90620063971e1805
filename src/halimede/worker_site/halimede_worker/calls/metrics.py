"""Metrics that a model makes itself; the server keeps their values and has them scraped with its own.

Making an object is a call to the server, and so is reading a value. Changes are checked here and sent off without
an answer: the server takes them in order, and before any later call of this process.
"""

import os
from typing import Any, ClassVar, Dict, List, Optional, Sequence, SupportsFloat, Tuple

from ..arguments import Signature
from ..enumeration import NamedInt
from ..errors import TritonModelException
from ..messages.wire import (
    DROP_FAMILY,
    DROP_SERIES,
    METRIC,
    METRIC_VALUE,
    NEW_FAMILY,
    NEW_SERIES,
    ClosedError,
    Message,
)
from ..runtime import Runtime, runtime


class MetricKind(NamedInt):
    """What a metric counts."""

    COUNTER = 0
    """It only rises."""

    GAUGE = 1
    """It rises and falls."""

    HISTOGRAM = 2
    """How many observations fell into each of its buckets."""


_NAMES = {MetricKind.COUNTER: "counter", MetricKind.GAUGE: "gauge", MetricKind.HISTOGRAM: "histogram"}
_NEW_FAMILY = Signature.constructor("MetricFamily(name: str, description: str, kind: MetricKind)")
_METRIC = Signature.function(
    "Metric(self: MetricFamily, labels: dict[str, str] = None, buckets: list[float] = None) -> Metric"
)
_INCREMENT = Signature.function("increment(self: Metric, value: float)")
_SET = Signature.function("set(self: Metric, value: float)")
_OBSERVE = Signature.function("observe(self: Metric, value: float)")

_FAMILY_GONE = (
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object should "
    "be deleted AFTER its corresponding 'Metric' objects have been deleted."
)


class _FamilyState:
    """Whether a family is there still, as its metrics know."""

    __slots__ = ("family_gone",)

    def __init__(self) -> None:
        self.family_gone = False


class MetricFamily:
    """Metrics of one name and kind, each with labels of its own.

    A family of a name that there is already, in whichever model, is the same; the first description holds. It is
    no longer scraped once all its objects are gone.

    Args:
        name: what it is called when it is scraped.
        description: a line for whoever reads the metrics.
        kind: `MetricFamily.COUNTER`, `MetricFamily.GAUGE` or `MetricFamily.HISTOGRAM`.

    Raises:
        TypeError: an argument is of another type.
        TritonModelException: the name is none that Prometheus allows, or is taken by a family of another kind or by a
            metric of the server.
    """

    __module__ = "c_python_backend_utils"

    _runtime: ClassVar[Runtime] = runtime

    __slots__ = ("_kind", "_number", "_process", "_state")

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        self._number = 0
        self._process = os.getpid()
        self._state = _FamilyState()
        self._kind = _NEW_FAMILY.instance("kind", kind, MetricKind)
        request = (
            NEW_FAMILY,
            _NEW_FAMILY.text("name", name),
            _NEW_FAMILY.text("description", description),
            _NAMES[self._kind],
        )
        self._number = _call(self._runtime, request, "Error when creating MetricFamily: ")

    def Metric(  # noqa: N802 - models know it by this name
        self, labels: Optional[Dict[str, str]] = None, buckets: Optional[Sequence[float]] = None
    ) -> "Metric":
        """The metric with these labels; one that was made before is the same.

        Args:
            labels: name → value.
            buckets: upper bounds of a histogram's buckets, rising; one for all that is above is there anyway.

        Raises:
            RuntimeError: a bucket's bound is no number.
            TritonModelException: the labels are none that Prometheus allows, the buckets do not rise, a histogram has
                none or another kind has some.
        """
        pairs = _pairs(self._runtime, labels)
        bounds = _bounds(buckets, self._kind)
        request = (NEW_SERIES, self._number, pairs, bounds)
        number = _call(self._runtime, request, "Error when creating Metric: ")
        metric = object.__new__(Metric)
        metric._runtime = self._runtime
        metric._kind = self._kind
        metric._state = self._state
        metric._process = os.getpid()
        metric._number = number
        return metric

    def __del__(self) -> None:
        state = getattr(self, "_state", None)
        if state is not None:
            state.family_gone = True
            _let_go(self._runtime, DROP_FAMILY, self._number, self._process)


class Metric:
    """One series of a family; `MetricFamily.Metric` gives it. It may be used by any thread.

    It is no longer scraped once all its objects are gone, or the family object that gave it.
    """

    __module__ = "c_python_backend_utils"

    __slots__ = ("_kind", "_number", "_process", "_runtime", "_state")

    _runtime: Runtime
    _kind: MetricKind
    _number: int
    _process: int
    _state: _FamilyState

    def __init__(self) -> None:
        raise TypeError("Metric: No constructor defined! Use the method Metric of a MetricFamily")

    def increment(self, value: SupportsFloat) -> None:
        """Add to a counter or gauge.

        Args:
            value: how much; not less than 0 for a counter.

        Raises:
            TypeError: it is no number.
            TritonModelException: a counter would fall, it is a histogram, or its family is gone.
        """
        number = value if type(value) is float else _INCREMENT.number("value", value)
        if self._kind is not MetricKind.GAUGE:
            if self._kind is MetricKind.HISTOGRAM:
                raise self._unsupported("increment", "Increment")
            if number < 0:
                text = "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values."
                raise self._refusal("increment", _of_server(self._runtime, text))
        self._change("increment", number)

    def set(self, value: SupportsFloat) -> None:
        """Give a gauge this value.

        Raises:
            TypeError: it is no number.
            TritonModelException: it is no gauge, or its family is gone.
        """
        number = value if type(value) is float else _SET.number("value", value)
        if self._kind is not MetricKind.GAUGE:
            raise self._unsupported("set", "Set")
        self._change("set", number)

    def observe(self, value: SupportsFloat) -> None:
        """Count an observation in a histogram.

        Raises:
            TypeError: it is no number.
            TritonModelException: it is no histogram, or its family is gone.
        """
        number = value if type(value) is float else _OBSERVE.number("value", value)
        if self._kind is not MetricKind.HISTOGRAM:
            raise self._unsupported("observe", "Observe")
        self._change("observe", number)

    def value(self) -> float:
        """The value of a counter or gauge, with all changes that were made before.

        Raises:
            TritonModelException: it is a histogram, or its family is gone.
        """
        if self._state.family_gone:
            raise self._refusal("get", _FAMILY_GONE)
        if self._kind is MetricKind.HISTOGRAM:
            raise self._unsupported("get", "Value")
        return float(_call(self._runtime, (METRIC_VALUE, self._number), "Failed to get metric value: "))

    def _change(self, operation: str, value: float) -> None:
        if self._state.family_gone:
            raise self._refusal(operation, _FAMILY_GONE)
        control = self._runtime.control
        assert control is not None, "whoever has a metric has a server"
        try:
            control.send((METRIC, self._number, operation, value))
        except ClosedError:
            raise self._refusal(operation, "the server is gone") from None

    def _unsupported(self, operation: str, words: str) -> TritonModelException:
        if self._state.family_gone:
            return self._refusal(operation, _FAMILY_GONE)
        text = f"TRITONSERVER_METRIC_KIND_{self._kind.name} does not support {words}"
        return self._refusal(operation, _of_server(self._runtime, text))

    def _refusal(self, operation: str, why: str) -> TritonModelException:
        return TritonModelException(f"Failed to {operation} metric value: {why}")

    def __del__(self) -> None:
        if hasattr(self, "_number"):
            _let_go(self._runtime, DROP_SERIES, self._number, self._process)


def _of_server(runtime: Runtime, text: str) -> str:
    """The text as the server would say it."""
    return f"Failed to process the request for model '{runtime.instance_name}', message: {text}"


def _call(runtime: Runtime, message: Message, what_failed: str) -> Any:
    """Ask the server.

    Raises:
        TritonModelException: it refuses, or there is none.
    """
    if runtime.control is None:
        raise TritonModelException(what_failed + "metrics are for models that run in a server")
    try:
        return runtime.call(message)
    except TritonModelException as error:
        raise TritonModelException(what_failed + str(error)) from None


def _let_go(runtime: Runtime, kind: int, number: int, process: int) -> None:
    """Tell the server that an object is gone; a copy of it in a forked process does not count."""
    try:
        if number and runtime.control is not None and os.getpid() == process:
            runtime.control.send((kind, number))
    except ClosedError:
        pass  # the server has let go of everything


def _pairs(runtime: Runtime, labels: Any) -> List[Tuple[str, str]]:
    """The labels, in their order.

    Raises:
        TritonModelException: they are no dictionary of texts.
    """
    if labels is None:
        return []
    if not isinstance(labels, dict):
        raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
    for name, value in labels.items():
        if not isinstance(value, str):
            raise TritonModelException(
                "Error when creating Metric: {}".format(
                    _of_server(runtime, f"attempt to access JSON non-string as string (label {name!r})")
                )
            )
    return [(str(name), str(value)) for name, value in labels.items()]


def _bounds(buckets: Any, kind: MetricKind) -> Optional[List[float]]:
    """The upper bounds of a histogram's buckets; None for another kind.

    Raises:
        RuntimeError: one is no number.
        TritonModelException: there are none or they are in no list, or another kind has some.
    """
    if buckets is not None and not isinstance(buckets, list):
        raise TritonModelException("Failed to create metric. Buckets must be a list.")
    if kind is not MetricKind.HISTOGRAM:
        if buckets is not None:
            raise TritonModelException("Failed to create metric. Unexpected buckets found.")
        return None
    if buckets is None:
        raise TritonModelException("Failed to create metric. Missing required buckets.")
    try:
        return [_METRIC.number("buckets' items", bound) for bound in buckets]
    except TypeError as error:
        raise RuntimeError(f"Unable to cast Python instance to C++ type: {error}") from None
