"""What a flag is: a name, the kind of its value, a default, and what it does, or why it does nothing here."""

import difflib
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of value.

    Attributes:
        metavar: what stands for the value in the help.
        parse: the value of a text; raises ValueError, whose text says what would be right.
        bare: the text that a flag without a value stands for; None where it needs one.
    """

    metavar: str
    parse: Callable[[str], T]
    bare: str | None = None


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered in {"true", "on", "1"}:
        return True
    if lowered in {"false", "off", "0"}:
        return False
    msg = f"'{text}' is no boolean; write true, on, 1, false, off or 0"
    raise ValueError(msg)


def _whole_number(text: str, low: int | None = None, high: int | None = None) -> int:
    try:
        number = int(text)
    except ValueError:
        msg = f"'{text}' is not a whole number"
        raise ValueError(msg) from None
    if (low is not None and number < low) or (high is not None and number > high):
        limits = f"at least {low}" if high is None else f"from {low} to {high}"
        msg = f"{number} is out of range; it must be {limits}"
        raise ValueError(msg)
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        msg = f"'{text}' is not a number"
        raise ValueError(msg) from None


def _milliseconds(text: str) -> int:
    number = _number(text)
    if not 1 <= number < 1 << 31:
        msg = f"{text} is out of range; it must be at least 1"
        raise ValueError(msg)
    return round(number)


def _verbosity(text: str) -> int:
    lowered = text.lower()
    if lowered in {"true", "on", "false", "off"}:
        return int(_boolean(text))
    return _whole_number(text, 0)


def choice(*values: str, exact: bool = False) -> Kind[str]:
    """One of `values`: in any letter case, unless it is to be `exact`."""
    known = {value.lower(): value for value in values}

    def parse(text: str) -> str:
        value = known.get(text.lower())
        if value is None or (exact and value != text):
            nearest = [known[each] for each in difflib.get_close_matches(text.lower(), known, n=1)]
            hint = f"; did you mean '{nearest[0]}'?" if nearest else ""
            msg = f"'{text}' is not one of {', '.join(map(repr, values))}{hint}"
            raise ValueError(msg)
        return value

    return Kind("|".join(values), parse)


def count(metavar: str, least: int = 0) -> Kind[int]:
    """A whole number that is not below `least`."""
    return Kind(metavar, lambda text: _whole_number(text, least))


BOOL = Kind("BOOL", _boolean, bare="true")
INT = Kind("INT", _whole_number)
COUNT = count("COUNT")
POSITIVE = count("COUNT", least=1)
SECONDS = count("SECONDS")
POSITIVE_SECONDS = count("SECONDS", least=1)
MILLISECONDS = count("MILLISECONDS")
POSITIVE_MILLISECONDS = count("MILLISECONDS", least=1)
PORT = Kind("PORT", lambda text: _whole_number(text, 0, 65_535))
NUMBER = Kind("NUMBER", _number)
INTERVAL = Kind("MILLISECONDS", _milliseconds)
VERBOSITY = Kind("LEVEL", _verbosity)
TEXT = Kind("TEXT", str)
ADDRESS = Kind("ADDRESS", str)
FILE = Kind("FILE", str)


def form(metavar: str) -> Kind[str]:
    """A text of the form that `metavar` shows, which is checked where it is used."""
    return Kind(metavar, str)


def per_device(metavar: str, check: Callable[[str], object]) -> Kind[str]:
    """A text of the form DEVICE:VALUE, whose value `check` refuses with a ValueError if it is impossible."""

    def parse(text: str) -> str:
        device, colon, value = text.partition(":")
        if not colon:
            raise ValueError(f"'{text}' is not of the form {metavar}")
        if _whole_number(device) < 0:
            raise ValueError(f"expects device ID >= 0, got {device}")
        check(value)
        return text

    return Kind(metavar, parse)


def _check_fraction(text: str) -> None:
    if not 0 <= _number(text) <= 1:
        raise ValueError(f"expects limit fraction to be in range [0.0, 1.0], got {text}")


BYTES_OF_DEVICE = per_device("DEVICE:BYTES", COUNT.parse)
FRACTION_OF_DEVICE = per_device("DEVICE:FRACTION", _check_fraction)


@dataclass(frozen=True, slots=True)
class Setting:
    """One flag of `halimede serve`.

    Attributes:
        name: its name, without the dashes in front.
        group: the heading that it stands under.
        kind: the kind of its value.
        default: its value when it is not given; `()` for a repeatable one.
        help: what it does, in one or two sentences.
        repeatable: it may be given several times, and all its values count.
        aliases: other names of it.
        shown_default: what the help says of the default, where the value itself would not tell.
        show: what may be shown of a value.
        reason: why it has no effect here; "" where it has one.
    """

    name: str
    group: str
    kind: Kind[Any]
    default: Any
    help: str
    repeatable: bool = False
    aliases: tuple[str, ...] = ()
    shown_default: str = ""
    show: Callable[[Any], str] = str
    reason: str = ""

    @property
    def attribute(self) -> str:
        """Its name as an identifier."""
        return self.name.replace("-", "_")

    @property
    def default_text(self) -> str:
        """The default as one would write it; "" for none."""
        if self.shown_default:
            return self.shown_default
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if self.default == ():
            return ""
        return str(self.default)

    @property
    def description(self) -> str:
        """What it does, or why it does nothing."""
        return f"{self.help} No effect: {self.reason}." if self.reason else self.help


def setting(
    group: str,
    kind: Kind[T],
    default: T,
    help: str,  # noqa: A002 - what it is called everywhere on a command line
    *,
    shown_default: str = "",
) -> T:
    """A dataclass field that is a flag."""
    metadata = {"group": group, "kind": kind, "help": help, "shown_default": shown_default}
    return field(default=default, metadata=metadata)


def repeated(
    group: str,
    kind: Kind[T],
    help: str,  # noqa: A002 - what it is called everywhere on a command line
    *,
    aliases: tuple[str, ...] = (),
    shown_default: str = "",
    show: Callable[[T], str] = str,
) -> tuple[T, ...]:
    """A dataclass field that is a flag which may be given several times."""
    metadata = {
        "group": group,
        "kind": kind,
        "help": help,
        "repeatable": True,
        "aliases": aliases,
        "shown_default": shown_default,
        "show": show,
    }
    return cast("tuple[T, ...]", field(default=(), metadata=metadata))


def settings_of(options: type) -> tuple[Setting, ...]:
    """The flags that the fields of a dataclass describe."""
    described: tuple[Field[Any], ...] = fields(options)
    return tuple(
        Setting(name=each.name.replace("_", "-"), default=each.default, **each.metadata) for each in described
    )
