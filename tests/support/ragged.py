"""A model of a flat tensor in any framework: requests of different shapes share a batch, over HTTP."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

ROWS = 3
"""A batch is sent when it has so many rows."""

BATCHING = f"""
    max_batch_size: 8 instance_group {{ count: 1 kind: KIND_CPU }}
    dynamic_batching {{ preferred_batch_size: [{ROWS}] max_queue_delay_microseconds: 60000000 }}
"""

SEGMENTS = f"""
    {BATCHING}
    input {{ name: "VALUES" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }}
    output {{ name: "SUM" data_type: TYPE_FP32 dims: [1] }}
    output {{ name: "TWICE" data_type: TYPE_FP32 dims: [-1] }}
    batch_input {{
        kind: BATCH_ACCUMULATED_ELEMENT_COUNT
        target_name: "ENDS" data_type: TYPE_INT32 source_input: "VALUES"
    }}
    batch_output {{ target_name: "TWICE" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "VALUES" }}
"""
"""VALUES, flat, and ENDS become SUM, a sum a request, and TWICE, two times VALUES."""

Answer = dict[str, Any]


def at_once(address: str, model: str, requests: Sequence[Answer], *outputs: str) -> list[Answer]:
    """The outputs of requests that are sent together, name → values, or ``error`` → the text of the error.

    Args:
        address: of the server, over HTTP.
        model: its name.
        requests: each with its inputs, FP32.
        outputs: those that are asked for; all if none.
    """
    asked = [httpclient.InferRequestedOutput(output) for output in outputs] or None

    def ask(inputs: Answer) -> Answer:
        tensors = []
        for name, values in inputs.items():
            array = np.array(values, np.float32)
            tensors.append(httpclient.InferInput(name, list(array.shape), "FP32"))
            tensors[-1].set_data_from_numpy(array)
        with httpclient.InferenceServerClient(address, network_timeout=30) as client:
            try:
                result = client.infer(model, tensors, outputs=asked)
            except InferenceServerException as error:
                return {"error": error.message()}
            names = [output["name"] for output in result.get_response()["outputs"]]
            return {name: result.as_numpy(name).tolist() for name in names}

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(ask, requests))


def executions(address: str, model: str) -> tuple[int, int]:
    """How many rows the model has computed, and in how many executions."""
    with httpclient.InferenceServerClient(address) as client:
        (statistics,) = client.get_inference_statistics(model)["model_stats"]
    return statistics["inference_count"], statistics["execution_count"]


def check_segments(address: str, model: str) -> None:
    """Requests of one row and of several, with elements and without, get what is theirs from shared batches."""
    rows = [[[1, 2, 3]], [[10]], [[]]]
    computed, executed = executions(address, model)
    answers = at_once(address, model, [{"VALUES": row} for row in rows])
    assert answers == [
        {"SUM": [[6]], "TWICE": [[2, 4, 6]]},
        {"SUM": [[10]], "TWICE": [[20]]},
        {"SUM": [[0]], "TWICE": [[]]},
    ]
    assert executions(address, model) == (computed + 3, executed + 1)
    alone = [[1, 2], [3, 4], [5, 6]]
    assert at_once(address, model, [{"VALUES": alone}], "TWICE") == [{"TWICE": [[2, 4], [6, 8], [10, 12]]}]
    assert executions(address, model) == (computed + 6, executed + 2)
    together = at_once(address, model, [{"VALUES": [[1, 2], [3, 4]]}, {"VALUES": [[5, 6, 7]]}], "TWICE")
    assert together == [{"TWICE": [[2, 4], [6, 8]]}, {"TWICE": [[10, 12, 14]]}]
    assert executions(address, model) == (computed + 9, executed + 3)
