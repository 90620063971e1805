"""Ask decoupled models over one gRPC stream: one request, any number of responses."""

import argparse
import queue
from typing import Any

import numpy as np
import tritonclient.grpc as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--grpc", default="localhost:8001", help="where the server listens for gRPC")
arguments = parser.parse_args()

arrived: "queue.Queue[Any]" = queue.Queue()


def tensor(name: str, values: list[int], dtype: type[np.generic], datatype: str) -> triton.InferInput:
    one = triton.InferInput(name, [len(values)], datatype)
    one.set_data_from_numpy(np.array(values, dtype))
    return one


def repeat(elements: list[int], delay_ms: int) -> list[triton.InferInput]:
    return [
        tensor("IN", elements, np.int32, "INT32"),
        tensor("DELAY", [delay_ms] * len(elements), np.uint32, "UINT32"),
        tensor("WAIT", [0], np.uint32, "UINT32"),
    ]


with triton.InferenceServerClient(arguments.grpc) as client:
    client.start_stream(lambda result, error: arrived.put(error or result))

    client.async_stream_infer("repeat_int32", repeat([4, 2, 0, 1], delay_ms=10), request_id="repeat")
    for _ in range(4):
        result = arrived.get(timeout=10)
        print(f"response {result.as_numpy('IDX')[0]}: {result.as_numpy('OUT')[0]}")

    for number in (4, 0, 2):
        client.async_stream_infer(
            "square_int32",
            [tensor("IN", [number], np.int32, "INT32")],
            request_id=f"square of {number}",
            enable_empty_final_response=True,
        )
    counts: dict[str, int] = {}
    unfinished = 3
    while unfinished:
        response = arrived.get(timeout=10).get_response()
        counts[response.id] = counts.get(response.id, 0) + len(response.outputs)
        unfinished -= response.parameters["triton_final_response"].bool_param
    for request, count in sorted(counts.items()):
        print(f"{request}: {count} responses")

    client.stop_stream()
