"""Flags of `halimede serve` as keyword arguments."""

import difflib
from collections.abc import Mapping
from typing import Any

from halimede.cli.options import SETTINGS, ServeOptions
from halimede.cli.settings import Setting


def options_from(flags: Mapping[str, Any]) -> ServeOptions:
    """The options that keyword arguments stand for: `http_port=9000` for `--http-port=9000`.

    Raises:
        TypeError: there is no such flag.
        ValueError: a value is none for its flag.
    """
    known = {each.attribute: each for each in SETTINGS if not each.reason}
    values = {}
    for name, value in flags.items():
        setting = known.get(name)
        if setting is None:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean '{nearest[0]}'?" if nearest else ""
            msg = f"there is no argument '{name}'{hint}. Arguments are the flags of `halimede serve`, with _ for -"
            raise TypeError(msg)
        values[name] = _parsed(setting, value)
    return ServeOptions(**values)


def _parsed(setting: Setting, value: Any) -> Any:
    if setting.repeatable:
        many = value if isinstance(value, (list, tuple)) else (value,)
        return tuple(_parsed_one(setting, each) for each in many)
    return _parsed_one(setting, value)


def _parsed_one(setting: Setting, value: Any) -> Any:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        return setting.kind.parse(text)
    except ValueError as error:
        msg = f"{setting.attribute}: {error}"
        raise ValueError(msg) from None
