"""Sequences under way while the server stops."""

import json
import signal
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

from tests.python_models.support import serve_models
from tests.python_models.test_sequences import DIRECT, SUM, config
from tests.support.waiting import wait_until


class Keeping:
    """One connection that is kept."""

    def __init__(self, address: str) -> None:
        self._connection = HTTPConnection(address, timeout=60)

    def close(self) -> None:
        self._connection.close()

    def send(self, sequence: int, flags: str = "") -> tuple[int, str]:
        """Status, and the sum or the error."""
        body = {
            "inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1]}],
            "parameters": {
                "sequence_id": sequence,
                "sequence_start": "S" in flags,
                "sequence_end": "E" in flags,
            },
        }
        self._connection.request("POST", "/v2/models/sum/infer", json.dumps(body))
        response = self._connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            return response.status, answer["error"]
        return 200, str(answer["outputs"][0]["data"][0])


def test_sequences_may_go_on_to_their_end_but_none_begins(tmp_path: Path) -> None:
    with serve_models(tmp_path, "--exit-timeout-secs=30") as models, ExitStack() as stack:
        models.load(SUM, config(DIRECT), "sum")
        client = Keeping(models.server.http)
        stack.callback(client.close)
        assert client.send(1, "S") == (200, "1.0")
        models.server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "Timeout 30" in models.server.log, "the beginning of the end")
        assert models.server.process.poll() is None
        assert client.send(1) == (200, "2.0")
        status, error = client.send(2, "S")
        assert status == 503
        assert "Server is stopping, scheduler for model has stopped accepting new inference requests" in error
        assert client.send(1, "E") == (200, "3.0")
        assert models.server.process.wait(20) == 0


def test_silent_sequences_are_not_waited_for_longer_than_their_time(tmp_path: Path) -> None:
    with serve_models(tmp_path, "--exit-timeout-secs=30") as models, ExitStack() as stack:
        models.load(SUM, config(DIRECT, idle_us=100_000), "sum")
        client = Keeping(models.server.http)
        stack.callback(client.close)
        assert client.send(1, "S") == (200, "1.0")
        models.server.process.send_signal(signal.SIGTERM)
        assert models.server.process.wait(20) == 0
