"""A real decoupled model whose client does not read waits for it, on its own thread."""

import json
import socket
import threading
from pathlib import Path

import pytest

from halimede.core.requests import InferRequest
from halimede.engine.scheduling.flow import Flow
from tests.frontends.http.models import serve_models
from tests.frontends.http.serving import post

COUNT = 10_000
REPEAT = """
backend: "repeat" model_transaction_policy { decoupled: true }
input [ { name: "IN" data_type: TYPE_INT32 dims: -1 },
        { name: "DELAY" data_type: TYPE_UINT32 dims: -1 },
        { name: "WAIT" data_type: TYPE_UINT32 dims: 1 } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: 1 }, { name: "IDX" data_type: TYPE_UINT32 dims: 1 } ]
"""


@pytest.fixture
def congested(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a request is held back."""
    event = threading.Event()
    congest = InferRequest.congest

    def tell(request: InferRequest) -> None:
        congest(request)
        event.set()

    monkeypatch.setattr(InferRequest, "congest", tell)
    return event


def repeat(count: int) -> bytes:
    body = {"IN": [7] * count, "DELAY": [0] * count, "WAIT": 0}
    return post(json.dumps(body).encode(), "/v2/models/repeat/generate_stream")


def test_a_client_that_does_not_read_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, congested: threading.Event
) -> None:
    sent: list[InferRequest] = []
    wait = Flow.wait

    def count(flow: Flow, request: InferRequest) -> None:
        wait(flow, request)
        sent.append(request)

    monkeypatch.setattr(Flow, "wait", count)
    (tmp_path / "repeat" / "1").mkdir(parents=True)
    (tmp_path / "repeat" / "config.pbtxt").write_text(REPEAT)
    with (
        serve_models(tmp_path, None, "repeat", kernel_bytes=1 << 14) as server,
        server.served.client() as stalled,
    ):
        stalled.socket.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16
        )  # so that the kernel keeps little
        stalled.send(repeat(COUNT))
        assert congested.wait(30)
        assert len(sent) < COUNT
        with server.served.client() as other:  # the model's other requests go on
            assert other.ask(repeat(100)).body.count(b'"OUT":7') == 100
        assert len(sent) < COUNT

        assert stalled.read().body.count(b"data: ") == COUNT
        assert len(sent) == COUNT + 100 + 2  # each with its end
