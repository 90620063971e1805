"""What sends traces goes on when it fails to send some."""

import pickle
from io import BytesIO

import pytest

from halimede.engine.tracing import otlp_process
from halimede.engine.tracing.otlp_process import run
from halimede.engine.tracing.otlp_settings import OtlpSettings
from tests.engine.tracing.test_otlp_spans import trace


def test_traces_that_cannot_be_sent_for_reasons_that_nobody_foresaw_are_dropped_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures, sent, dropped = [RuntimeError("unforeseen")], [], []

    class Sender:
        def __init__(self, **_: object) -> None:
            """It connects to nothing."""

        def send(self, data: bytes) -> str:
            if failures:
                raise failures.pop()
            sent.append(data)
            return ""

    monkeypatch.setattr(otlp_process, "Sender", Sender)
    batches = BytesIO(b"".join(pickle.dumps([[trace()]]) for _ in range(3)))
    run(batches, OtlpSettings("", {}, 10, 1000, 1), lambda count, why: dropped.append((count, why)))
    assert dropped == [(1, "RuntimeError('unforeseen')")]
    assert len(sent) == 2
