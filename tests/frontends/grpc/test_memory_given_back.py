"""Memory that large requests took is given back a moment after they have ended."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient

from tests.support.server import ServerProcess, start_server
from tests.support.waiting import wait_until

CONFIG = """
backend: "identity" max_batch_size: 0
input [{ name: "INPUT0" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1] }]
"""
ZEROS = np.zeros(16_000_000, np.float32)
MEBIBYTES_TO_SPARE = 32


def over_grpc(server: ServerProcess, compression: str | None) -> None:
    tensor = grpcclient.InferInput("INPUT0", ZEROS.shape, "FP32")
    tensor.set_data_from_numpy(ZEROS)
    with grpcclient.InferenceServerClient(server.grpc) as client:
        result = client.infer("m", [tensor], compression_algorithm=compression)
        assert result.as_numpy("OUTPUT0").shape == ZEROS.shape


def over_http(server: ServerProcess, compression: str | None) -> None:
    tensor = httpclient.InferInput("INPUT0", ZEROS.shape, "FP32")
    tensor.set_data_from_numpy(ZEROS)
    with httpclient.InferenceServerClient(server.http, network_timeout=60) as client:
        result = client.infer(
            "m",
            [tensor],
            request_compression_algorithm=compression,
            response_compression_algorithm=compression,
        )
        assert result.as_numpy("OUTPUT0").shape == ZEROS.shape


def held_mebibytes(server: ServerProcess) -> int:
    """Memory of the server that is no file's."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem"))) >> 10


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("ask", [over_grpc, over_http])
def test_memory_of_large_requests_is_given_back_soon(
    tmp_path: Path, ask: Callable[[ServerProcess, str | None], None], compression: str | None
) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG)
    with start_server(tmp_path) as server:
        before = held_mebibytes(server)
        for _ in range(2):
            ask(server, compression)
        wait_until(
            lambda: held_mebibytes(server) < before + MEBIBYTES_TO_SPARE,
            lambda: f"{held_mebibytes(server)} MiB to become about {before}",
        )
