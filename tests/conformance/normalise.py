"""What must differ between two servers that answer alike: times, ports, addresses, places of files."""

import re
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.answers import Answer, Value

TEXTS = (
    (
        re.compile(
            r"(incompatible (?:constructor|function) arguments)\. The following.*?(?=\n\nAt:|$)", re.DOTALL
        ),
        r"\1",
    ),
    (
        re.compile(
            r"(?m)^  (?:<frozen importlib\.|\S*/importlib/__init__\.py|\S*triton_python_backend_utils\.py).*\n?"
        ),
        "",
    ),
    (
        re.compile(r"(failed to parse the request JSON buffer: ).*", re.DOTALL),
        r"\1<what the JSON parser says>",
    ),
    (re.compile(r"(for model '[^']*', searched:)( '[^']*')+ ?"), r"\1 <directories>"),
    (re.compile(r"127\.0\.0\.1:\d+|0\.0\.0\.0:\d+"), "<address>:<port>"),
    (re.compile(r"0x[0-9a-fA-F]{6,}"), "<pointer>"),
    (re.compile(r"/tmp/(?:folder|halimede-|tmp)[\w.-]*"), "<temporary directory>"),
)
NO_BRACKET = ("missing required input(s) ]", "missing required input(s) []")
"""What 2.51 writes where no input is missing, and what it means."""
NAMES = re.compile(r"(input\(s\) \[)([^\]]*)(\])")
"""Names of inputs in the order of a hash table."""
NEWER = re.compile(r"\.ensemble_scheduling\.max_inflight_requests$")
"""Members that tritonserver 2.51 does not have yet, and later versions do."""
UNTYPED = ("header content-type", "text/plain", "application/json")
"""What tritonserver gives its errors and empty answers for a type, and what this server does."""
TIMES = re.compile(r"(\.ns|\.last_inference|_duration_us(_sum)?(\{.*\})?)$")
"""Paths of values that are durations or times: that they are not 0 is all that is compared."""


def normalised(answer: Answer, places: Mapping[str, Path], ignored: tuple[str, ...] = ()) -> Answer:
    """The answer without what depends on the server, the run or the clock.

    Args:
        answer: what a server has answered.
        places: that server's model repositories, by what stands for them.
        ignored: patterns of paths that are left out.
    """
    left_out = [re.compile(pattern) for pattern in ignored]
    return {
        path: value_of(path, value, places)
        for path, value in answer.items()
        if not NEWER.search(path) and not any(pattern.search(path) for pattern in left_out)
    }


def value_of(path: str, value: Value, places: Mapping[str, Path]) -> Value:
    """One value, normalised."""
    header, untyped, typed = UNTYPED
    if path.endswith(header) and value == untyped:
        return typed
    if isinstance(value, str):
        text = value
        for name, place in places.items():
            text = text.replace(str(place), name)
        for pattern, replacement in TEXTS:
            text = pattern.sub(replacement, text)
        text = text.replace(*NO_BRACKET)
        return NAMES.sub(lambda found: found[1] + ",".join(sorted(found[2].split(","))) + found[3], text)
    if TIMES.search(path) and value:
        return "<time>"
    return value
