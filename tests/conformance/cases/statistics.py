"""Statistics over HTTP and gRPC."""

from typing import Any

import numpy as np

from tests.conformance.asking import get, grpc_infer, infer, loaded, message, rpc, tensor
from tests.conformance.case import Case, case
from tests.conformance.cases.grpc_stream import stream
from tests.conformance.differences import MODEL_ERRORS_FAIL, RESPONSE_STATS
from tests.conformance.servers import MODELS
from tests.conformance.sources import CONFIG, IDENTITY, executing
from tests.conformance.steps import Http, Only, Settled, Step, Together

X = tensor("X", "INT32", [1, 2])
ROWS = tensor("X", "INT32", [[1], [2]])
BATCHING = CONFIG + "max_batch_size: 4"
DECOUPLED = CONFIG.replace("INT32", "INT32") + "model_transaction_policy { decoupled: true }"
SENDING = executing(
    """        for request in requests:
            sender = request.get_response_sender()
            for value in pb_utils.get_input_tensor_by_name(request, "X").as_numpy():
                if value < 0:
                    sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("negative")))
                else:
                    tensor = pb_utils.Tensor("OUT", np.array([value], np.int32))
                    sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"""
)
RAISING = executing("        raise ValueError('always')")
REFUSING = executing(
    "        return [pb_utils.InferenceResponse(error=pb_utils.TritonError('refused')) for _ in requests]"
)


def counted(number: int, *asked: Step, source: str = IDENTITY, text: str = CONFIG) -> tuple[Step, ...]:
    """A model that is asked, and its statistics over HTTP and gRPC."""
    name = f"counted_{number}"
    return loaded(
        name,
        text,
        source,
        *asked,
        Settled(get(f"/v2/models/{name}/stats")),
        rpc("ModelStatistics", name=name),
    )


def numbers(*values: int) -> Any:
    """An input."""
    return np.array(values, np.int32)


def names(answer: Any) -> Any:
    """The names in statistics of all models that are in `models/`, in order."""
    ours = {one.name for one in MODELS.iterdir()}
    found = sorted(str(value) for path, value in answer.items() if path.endswith(".name") and value in ours)
    return {"names": " ".join(found), "status": answer.get("status", answer.get("code"))}


CASES: list[Case] = [
    case("nothing asked", *counted(1)),
    case("one request", *counted(2, infer("counted_2", X))),
    case("three requests", *counted(3, *(infer("counted_3", X) for _ in range(3)))),
    case(
        "rows",
        *counted(4, infer("counted_4", ROWS), infer("counted_4", tensor("X", "INT32", [[1]])), text=BATCHING),
    ),
    case("a request that is refused", *counted(5, infer("counted_5", tensor("Y", "INT32", [1])))),
    case("a wrong shape", *counted(6, infer("counted_6", tensor("X", "INT32", [[1]])))),
    case("a model that raises", *counted(7, infer("counted_7", X), source=RAISING)),
    case("a model that raises, rows", *counted(8, infer("counted_8", ROWS), source=RAISING, text=BATCHING)),
    case(
        "a model that refuses", *counted(9, infer("counted_9", X), source=REFUSING), differs=MODEL_ERRORS_FAIL
    ),
    case("over gRPC", *counted(10, grpc_infer("counted_10", ("X", numbers(1))))),
    case(
        "responses",
        *counted(11, stream(message("counted_11", ("X", numbers(1, 2, 3)))), source=SENDING, text=DECOUPLED),
        differs=RESPONSE_STATS,
    ),
    case(
        "no responses",
        *counted(12, stream(message("counted_12", ("X", numbers()))), source=SENDING, text=DECOUPLED),
        differs=RESPONSE_STATS,
    ),
    case(
        "responses with an error",
        *counted(13, stream(message("counted_13", ("X", numbers(1, -1, 2)))), source=SENDING, text=DECOUPLED),
        differs=RESPONSE_STATS,
    ),
    case(
        "responses of two requests",
        *counted(
            14,
            stream(message("counted_14", ("X", numbers(1, 2)))),
            stream(message("counted_14", ("X", numbers(1)))),
            source=SENDING,
            text=DECOUPLED,
        ),
        differs=RESPONSE_STATS,
    ),
    case(
        "a version",
        *counted(
            15,
            infer("counted_15", X),
            get("/v2/models/counted_15/versions/1/stats"),
            get("/v2/models/counted_15/versions/2/stats"),
        ),
    ),
    case("an output that fails", *counted(16, infer("counted_16", X, outputs=[{"name": "UNKNOWN"}]))),
    case(
        "together",
        *counted(17, Only(Together(tuple(infer("counted_17", X) for _ in range(4)), 0), lambda _: {})),
    ),
    case("all models", Only(get("/v2/models/stats"), names)),
    case("all models over gRPC", Only(rpc("ModelStatistics"), names)),
    case("POST", Http("POST", "/v2/models/stats")),
    case("stats of an ensemble's version", get("/v2/models/unknown/stats")),
]
