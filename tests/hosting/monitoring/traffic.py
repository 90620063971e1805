"""Captured files of known data."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import orjson

from halimede.hosting.capture.records import BASE64, JSON, CaptureRecord, Payload, write_record
from tests.hosting.monitoring.columns import random


def records(count: int, begin: float, seed: int = 0, shift: float = 0.0) -> Iterable[CaptureRecord]:
    """Invocations of a model with the input ``x``, of three numbers, and the outputs ``score`` and ``label``.

    Requests are JSON, responses have binary tensors. `shift` moves the first number of `x`.
    """
    source = random(seed)
    moment = datetime.fromtimestamp(begin, UTC)
    for number in range(count):
        x = source.normal([shift, 5, -3], [1, 2, 0.5])
        inputs = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": x.tolist()}]}
        score = np.array([[1 / (1 + np.exp(-x[0]))]], np.float32)
        label = b"high" if score[0, 0] > 0.5 else b"low"
        text = len(label).to_bytes(4, "little") + label
        head = orjson.dumps(
            {
                "outputs": [
                    {
                        "name": "score",
                        "datatype": "FP32",
                        "shape": [1, 1],
                        "parameters": {"binary_data_size": 4},
                    },
                    {
                        "name": "label",
                        "datatype": "BYTES",
                        "shape": [1, 1],
                        "parameters": {"binary_data_size": len(text)},
                    },
                ]
            }
        )
        kind = f"application/vnd.sagemaker-triton.binary+json;json-header-size={len(head)}"
        yield CaptureRecord(
            f"event-{number}",
            moment + timedelta(seconds=number % 3000),
            Payload(orjson.dumps(inputs), "application/json", JSON),
            Payload(head + score.tobytes() + text, kind, BASE64),
        )


def write_file(path: Path, captured: Iterable[CaptureRecord]) -> Path:
    """A captured file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(write_record, captured)))
    return path
