"""Requests held against AWS's own service models, with the texts in which AWS refuses them.

botocore brings the models and checks, as a client, only types and lower bounds; here are the upper bounds, patterns,
enumerations and required members too.
"""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from halimede.hosting.api.patterns import compile_pattern
from halimede.hosting.errors import ApiError
from halimede.hosting.line_limit import LineLimit

logger = logging.getLogger("halimede")

_MAX_SHOWN = 256
"""So many characters of a wrong value are repeated."""

_LISTED = 40
"""So many of an enumeration's values are named."""

_MAX_PROBLEMS = 20
"""After so many nothing more is looked for."""

_TYPES: Mapping[str, tuple[type, ...]] = {
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "timestamp": (int, float, str, datetime),
    "blob": (str, bytes),
}

_BITS = {"integer": 32, "long": 64}

_JSON_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
"""What a value is in JSON; anything else is a number."""


class Checker:
    """Checks requests of one service."""

    def __init__(
        self, further: Mapping[str, Collection[str]] | None = None, code: str = "ValidationException"
    ) -> None:
        """A checker.

        Args:
            further: enumeration's shape name → values that it has here beside its own.
            code: of the error that says what is wrong with a request.
        """
        self._further = further or {}
        self._code = code
        self._limit = LineLimit()

    def check(self, shape: Any, document: Mapping[str, Any]) -> dict[str, Any]:
        """The document, with timestamps as `datetime`, in UTC. Members that the model does not know are kept.

        Args:
            shape: a `botocore.model.StructureShape`.
            document: the request.

        Raises:
            ApiError: it breaks the model, or has values of wrong types (``SerializationException``).
        """
        walk = _Walk(self._further, self._code)
        checked: dict[str, Any] = walk.check(shape, document, "")
        if walk.problems:
            raise walk.refusal()
        if walk.unknown and (more := self._limit.admit()) is not None:
            logger.warning("members that are not known have no effect: %s%s", _listing(walk.unknown), more)
        return checked


class _Walk:
    """One walk through a request.

    Attributes:
        problems: what is wrong.
        unknown: paths of members that the model does not know.
    """

    def __init__(self, further: Mapping[str, Collection[str]], code: str) -> None:
        self.problems: list[str] = []
        self.unknown: list[str] = []
        self._further = further
        self._code = code

    def refusal(self, more: str = "") -> ApiError:
        """The error that says what is wrong."""
        count = len(self.problems)
        noun = "error" if count == 1 else "errors"
        return ApiError(self._code, f"{count} validation {noun} detected: {'; '.join(self.problems)}{more}")

    def check(self, shape: Any, value: Any, path: str) -> Any:
        """The value, checked."""
        kind = shape.type_name
        if not _is_of(kind, value):
            where = f" at '{path}'" if path else ""
            what = _JSON_NAMES.get(type(value), "a number")
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                what = f"the number {_shown(value)}"
            raise ApiError("SerializationException", f"{what}{where} cannot be converted to {kind}")
        if kind == "structure":
            return self._structure(shape, value, path)
        if kind == "timestamp":
            return _timestamp(value, path)
        within = self._bounds(shape, value, path)
        if kind in ("list", "map") and not within:
            return value  # it may hold any number of further problems
        if kind == "list":
            return [
                self.check(shape.member, each, f"{path}.{index}.member")
                for index, each in enumerate(value, 1)
            ]
        if kind == "map":
            return {
                self.check(shape.key, key, f"{path}.{_shown(key)}.key"): self.check(
                    shape.value, each, f"{path}.{_shown(key)}.value"
                )
                for key, each in value.items()
            }
        if kind == "string" and within:
            self._text(shape, value, path)
        return float(value) if kind in ("float", "double") else value

    def _structure(self, shape: Any, value: Mapping[str, Any], path: str) -> dict[str, Any]:
        lead = f"{path}." if path else ""
        checked = {}
        for name, each in value.items():
            member = shape.members.get(name)
            if each is None:
                continue
            if member is None:
                self.unknown.append(lead + _shown(name))
                checked[name] = each
            else:
                checked[name] = self.check(member, each, lead + _lower(name))
        for name in shape.required_members:
            if name not in checked:
                self._note(
                    f"Value null at '{lead}{_lower(name)}' failed to satisfy constraint: Member must not be null"
                )
        return checked

    def _bounds(self, shape: Any, value: Any, path: str) -> bool:
        """Whether a value is neither too small nor too large, or too long or short."""
        what, size = ("length", len(value)) if hasattr(value, "__len__") else ("value", value)
        low, high = shape.metadata.get("min"), shape.metadata.get("max")
        if low is not None and size < low:
            self._break(shape, value, path, f"have {what} greater than or equal to {low}")
            return False
        if high is not None and size > high:
            self._break(shape, value, path, f"have {what} less than or equal to {high}")
            return False
        return True

    def _text(self, shape: Any, value: str, path: str) -> None:
        values = shape.metadata.get("enum")
        further = self._further.get(shape.name, ())
        if values and value not in values and value not in further:
            self._break(
                shape,
                value,
                path,
                f"satisfy enum value set: [{_listing(list(dict.fromkeys([*further, *values])))}]",
            )
        pattern = shape.metadata.get("pattern")
        if pattern and not compile_pattern(pattern).fullmatch(value):
            self._break(shape, value, path, f"satisfy regular expression pattern: {pattern}")

    def _break(self, shape: Any, value: object, path: str, constraint: str) -> None:
        found = "Value" if shape.metadata.get("sensitive") else f"Value '{_shown(value)}'"
        self._note(f"{found} at '{path}' failed to satisfy constraint: Member must {constraint}")

    def _note(self, problem: str) -> None:
        self.problems.append(problem)
        if len(self.problems) >= _MAX_PROBLEMS:
            raise self.refusal("; there may be more, which were not looked for")


def _is_of(kind: str, value: object) -> bool:
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return False
    if isinstance(value, float):
        return math.isfinite(value)
    bits = _BITS.get(kind)
    return bits is None or not isinstance(value, int) or -(1 << bits - 1) <= value < 1 << bits - 1


def _shown(value: object) -> str:
    text = repr(value)[: _MAX_SHOWN + 2] if isinstance(value, (dict, list)) else str(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def _listing(names: Sequence[str]) -> str:
    more = f", … {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _lower(name: str) -> str:
    return name[:1].lower() + name[1:]


def _timestamp(value: Any, path: str) -> datetime:
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        return value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError) as error:
        msg = f"'{_shown(value)}' at '{path}' is not a time: {error}"
        raise ApiError("SerializationException", msg) from None
