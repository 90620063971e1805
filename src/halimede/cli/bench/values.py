"""Values of options that are more than a number: ranges, shapes, parameters, headers, limits."""

from collections.abc import Iterable
from typing import Any

import click

from halimede.bench.errors import BenchError
from halimede.bench.limits import seconds


class Range(click.ParamType[Any]):
    """`start[:end[:step]]`, or a list with commas.

    Its value is a tuple of numbers, ascending for a range.
    """

    name = "start:end:step"

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The numbers."""
        if isinstance(value, tuple):
            return value
        try:
            if "," in value:
                figures = [self._number(part) for part in value.split(",")]
            else:
                start, *rest = [self._number(part) for part in value.split(":")]
                end, step = (*rest, *([start, 1.0][len(rest) :])) if len(rest) < 2 else rest
                if step <= 0 or end < start:
                    raise ValueError
                count = int((end - start) / step + 1e-9)
                figures = [start + step * place for place in range(count + 1)]
            if min(figures) <= 0:
                raise ValueError
        except ValueError:
            kind = "whole numbers" if self._whole else "numbers"
            self.fail(
                f"'{value}' is neither start:end:step, with {kind} above 0, nor a list such as 1,2,4,8",
                param,
                ctx,
            )
        return tuple(int(figure) if self._whole else figure for figure in figures)

    def _number(self, text: str) -> float:
        return int(text) if self._whole else float(text)


class Duration(click.ParamType[Any]):
    """A time such as `20ms`; its value is in seconds."""

    name = "time"

    def __init__(self, unit: str = "") -> None:
        self._unit = unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The seconds."""
        if isinstance(value, float):
            return value
        try:
            return seconds(value, self._unit)
        except BenchError as error:
            self.fail(str(error), param, ctx)


def shapes(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Shapes by the names of inputs, from `NAME:3,224,224`."""
    found = {}
    for text in texts:
        name, _, sizes = text.rpartition(":")
        try:
            found[name] = tuple(int(size) for size in sizes.split(",") if size)
        except ValueError:
            found[name] = (-1,)
        if not name or any(size < 0 for size in found[name]):
            raise click.UsageError(f"--shape '{text}' does not have the form NAME:3,224,224")
    return found


def parameters(texts: Iterable[str]) -> dict[str, bool | int | str]:
    """Parameters of requests, from `name:value:type`."""
    found: dict[str, bool | int | str] = {}
    for text in texts:
        name, _, rest = text.partition(":")
        value, _, kind = rest.rpartition(":")
        try:
            if kind == "bool" and value.lower() in ("true", "false"):
                found[name] = value.lower() == "true"
            elif kind in ("int", "uint"):
                found[name] = int(value)
            elif kind == "string":
                found[name] = value
            else:
                raise ValueError(kind)
        except ValueError:
            raise click.UsageError(
                f"--request-parameter '{text}' does not have the form name:value:type; types are bool, int, string"
            ) from None
    return found


def headers(texts: Iterable[str]) -> dict[str, str]:
    """Headers of requests, from `Name:value`."""
    found = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise click.UsageError(f"-H '{text}' does not have the form Name:value")
        found[name.strip()] = value.strip()
    return found


def id_range(text: str | None) -> tuple[int, int]:
    """The first correlation id and how many there are, from `start[:end]`."""
    if text is None:
        return 1, 2**31
    start, _, end = text.partition(":")
    try:
        first, count = int(start), int(end) - int(start) if end else 2**31
    except ValueError:
        first, count = 0, 0
    if first < 1 or count < 1:
        raise click.UsageError(f"--sequence-id-range '{text}' does not have the form start:end, from 1 on")
    return first, count
