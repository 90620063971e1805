"""Add up numbers in sequences that take turns: over HTTP, a gRPC stream, and through a model that calls another."""

import argparse
import queue
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

VALUES: dict[int | str, list[int]] = {7: [4, 5, 6], "till-3": [10, 20, 30]}
"""Sequences by their correlation ids: numbers, or strings."""

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--http", default="localhost:8000", help="where the server listens for HTTP")
parser.add_argument("--grpc", default="localhost:8001", help="where the server listens for gRPC")
arguments = parser.parse_args()


def tensor(client: Any, name: str, values: np.ndarray[Any, Any]) -> Any:
    one = client.InferInput(name, values.shape, "INT32")
    one.set_data_from_numpy(values)
    return one


def in_turns() -> list[tuple[int | str, int, dict[str, bool]]]:
    """Sequence, value and flags of each request: the first of each sequence, then the second of each, and so on."""
    requests = []
    for step in range(3):
        for sequence, values in VALUES.items():
            flags = {"sequence_start": step == 0, "sequence_end": step == 2}
            requests.append((sequence, values[step], flags))
    return requests


for model in ("accumulator", "accumulator_direct"):
    totals: dict[int | str, list[int]] = {sequence: [] for sequence in VALUES}
    with httpclient.InferenceServerClient(arguments.http) as http:
        for sequence, value, flags in in_turns():
            inputs = [tensor(httpclient, "VALUE", np.array([[value]], np.int32))]
            result = http.infer(model, inputs, sequence_id=sequence, **flags)
            totals[sequence].append(result.as_numpy("TOTAL").item())
    print(f"{model} over HTTP: {totals}")

    arrived: "queue.Queue[Any]" = queue.Queue()
    totals = {sequence: [] for sequence in VALUES}
    with grpcclient.InferenceServerClient(arguments.grpc) as grpc:
        grpc.start_stream(lambda result, error, arrived=arrived: arrived.put(error or result))
        for sequence, value, flags in in_turns():  # all at once: the server keeps their order
            inputs = [tensor(grpcclient, "VALUE", np.array([[value]], np.int32))]
            grpc.async_stream_infer(model, inputs, request_id=str(sequence), sequence_id=sequence, **flags)
        for _ in in_turns():
            result = arrived.get(timeout=10)
            name = result.get_response().id
            totals[int(name) if name.isdigit() else name].append(result.as_numpy("TOTAL").item())
        grpc.stop_stream()
    print(f"{model} over a gRPC stream: {totals}")

with httpclient.InferenceServerClient(arguments.http) as http:
    result = http.infer("statement", [tensor(httpclient, "VALUES", np.array([4, 5, 6], np.int32))])
    print(f"statement: {result.as_numpy('TOTALS').tolist()}")
    try:
        http.infer("accumulator", [tensor(httpclient, "VALUE", np.array([[1]], np.int32))], sequence_id=7)
    except InferenceServerException as error:
        print(f"after its end: {error}")
