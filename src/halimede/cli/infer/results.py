"""The answer, as a table or as JSON."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from halimede.cli.infer.remote import Array, RemoteOutput
from halimede.cli.tables import table


def as_table(outputs: Sequence[RemoteOutput]) -> str:
    """The outputs in rows; of large ones the first and last elements."""
    rows = [(each.name, each.datatype, str(list(each.array.shape)), _values(each.array)) for each in outputs]
    return table(("Output", "Datatype", "Shape", "Values"), rows)


def as_json(outputs: Sequence[RemoteOutput]) -> str:
    """The outputs in one line, with nested lists as values."""
    return json.dumps(
        {
            each.name: {
                "datatype": each.datatype,
                "shape": list(each.array.shape),
                "data": _nested(each.array),
            }
            for each in outputs
        },
        ensure_ascii=False,
    )


def _values(array: Array) -> str:
    if array.dtype == np.object_:
        array = np.array([_text(each) for each in array.ravel().tolist()]).reshape(array.shape)
    return np.array2string(
        array,
        max_line_width=76,
        threshold=64,
        edgeitems=3,
        precision=6,
        suppress_small=True,
        separator=", ",
    )


def _nested(array: Array) -> Any:
    if array.dtype == np.object_:
        return (
            np.array([_text(each) for each in array.ravel().tolist()], np.object_)
            .reshape(array.shape)
            .tolist()
        )
    return array.tolist()


def _text(element: Any) -> str:
    return element.decode(errors="backslashreplace") if isinstance(element, bytes) else str(element)
