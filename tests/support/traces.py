"""Triton's trace files, read by what is known of their format alone."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.waiting import wait_until

RECEIVED = ("REQUEST_START", "QUEUE_START")
COMPUTED = ("COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END")
RUN = (*RECEIVED, *COMPUTED, "REQUEST_END")
"""What happens to a request that a model runs, in order."""


@dataclass
class ReadTensor:
    """A tensor that a trace shows."""

    activity: str
    name: str
    data: str
    shape: str
    dtype: str


@dataclass
class ReadTrace:
    """What a file says of one request.

    Attributes:
        number: its id.
        model: the model's name and version; None if the file does not say.
        request_id: the request's identifier, "" for none.
        parent: the id of what caused it, 0 for none.
        times: names and times of what happened, as they are in the file.
        tensors: the contents of tensors.
    """

    number: int
    model: tuple[str, int] | None = None
    request_id: str = ""
    parent: int = 0
    times: list[tuple[str, int]] = field(default_factory=list)
    tensors: list[ReadTensor] = field(default_factory=list)

    def names(self, *of: str) -> list[str]:
        """What happened, in the order of the times; of these, or all."""
        in_order = sorted(self.times, key=lambda each: each[1])
        return [name for name, _ in in_order if not of or name in of]

    def at(self, name: str) -> int:
        """When something happened, which did once."""
        (ns,) = [ns for each, ns in self.times if each == name]
        return ns


def read_traces(path: Path) -> list[ReadTrace]:
    """The traces in a file, by their ids."""
    traces: dict[int, ReadTrace] = {}
    for each in json.loads(path.read_bytes()):
        trace = traces.setdefault(each["id"], ReadTrace(each["id"]))
        if "model_name" in each:
            trace.model = each["model_name"], each["model_version"]
            trace.request_id, trace.parent = each.get("request_id", ""), each.get("parent_id", 0)
        for stamp in each.get("timestamps", ()):
            trace.times.append((stamp["name"], stamp["ns"]))
        if "activity" in each:
            trace.tensors.append(ReadTensor(each["activity"], **each["tensor"]))
    return [traces[number] for number in sorted(traces)]


def await_traces(
    path: Path, enough: Callable[[list[ReadTrace]], bool], timeout: float = 60
) -> list[ReadTrace]:
    """The traces in a file, once there are enough."""
    traces: list[ReadTrace] = []

    def found() -> bool:
        nonlocal traces
        try:
            traces = read_traces(path)
        except (FileNotFoundError, ValueError):  # not begun, or being written to
            return False
        return enough(traces)

    wait_until(found, lambda: f"traces; there are {traces}", timeout)
    return traces
