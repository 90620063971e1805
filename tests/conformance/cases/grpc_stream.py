"""ModelStreamInfer."""

from typing import Any

import numpy as np

from tests.conformance.asking import grpc_infer, message, rpc
from tests.conformance.case import Case, case
from tests.conformance.cases.grpc_infer import ADD_SUB, X
from tests.conformance.steps import Stream

FINAL: dict[str, Any] = {"triton_enable_empty_final_response": True}


def repeat(*values: int, mode: str = "", **options: Any) -> Any:
    """A request of `repeat`."""
    modes = [("MODE", np.array([mode.encode()], np.object_))] if mode else []
    return message("repeat", ("IN", np.array(values, np.int32)), *modes, **options)


def stream(*messages: Any, **metadata: str) -> Stream:
    """A stream of those messages."""
    return Stream(tuple(messages), tuple(metadata.items()))


def answers(kind: str, **options: Any) -> Any:
    """A request of `answers`."""
    return message("answers", ("KIND", np.array([kind.encode()], np.object_)), **options)


ERROR = {"triton_grpc_error": "true"}
MODES = ("error", "raise", "raise at the end", "final with the last", "after final")

CASES: list[Case] = [
    case("no messages", stream()),
    case("one request", stream(message("add_sub", *ADD_SUB, id="1"))),
    case("one request without id", stream(message("add_sub", *ADD_SUB))),
    case("three requests", stream(*(message("versions", X, id=str(number)) for number in range(3)))),
    case(
        "requests of several models",
        stream(message("versions", X, id="1"), message("add_sub", *ADD_SUB, id="2")),
    ),
    case("a final response asked for", stream(message("versions", X, id="1", **FINAL))),
    case("a version", stream(message("versions", X, version="1"))),
    case("responses", stream(repeat(3, 4, 5, id="a"))),
    case("responses and the final one", stream(repeat(3, 4, 5, id="a", **FINAL))),
    case("no responses", stream(repeat(id="a"))),
    case("no responses and the final one", stream(repeat(id="a", **FINAL))),
    case("the final one with a version", stream(repeat(1, id="a", version="1", **FINAL))),
    case("two requests", stream(repeat(1, 2, id="a"), repeat(3, id="b", **FINAL))),
    *(case(f"mode {mode}", stream(repeat(1, 2, 3, mode=mode, id="a", **FINAL))) for mode in MODES),
    case("mode error without the final one", stream(repeat(1, 2, 3, mode="error", id="a"))),
    case("mode error ends the stream", stream(repeat(1, 2, 3, mode="error", id="a"), **ERROR)),
    case("an unknown model", stream(message("unknown", X, id="1"))),
    case(
        "an unknown model, then another",
        stream(message("unknown", X, id="1"), message("versions", X, id="2")),
    ),
    case("an unknown model ends the stream", stream(message("unknown", X, id="1"), **ERROR)),
    case("an unknown version", stream(message("versions", X, id="1", version="9"))),
    case("version x", stream(message("versions", X, id="1", version="x"))),
    case("an unknown input", stream(message("versions", ("Y", X[1]), id="1"))),
    case("an unknown input without id", stream(message("versions", ("Y", X[1])))),
    case(
        "an unknown input with the final one asked for",
        stream(message("versions", ("Y", X[1]), id="1", **FINAL)),
    ),
    case("an input missing", stream(message("add_sub", ADD_SUB[0], id="1"))),
    case("a reserved parameter", stream(message("versions", X, id="1", triton_x=1))),
    case(
        "a final response asked for by a number",
        stream(message("versions", X, triton_enable_empty_final_response=1)),
    ),
    case("an error of the model", stream(answers("error", id="1"))),
    case("an error of the model ends the stream", stream(answers("error", id="1"), **ERROR)),
    case("an error of the model with a code", stream(answers("code:NOT_FOUND", id="1"), **ERROR)),
    case("a model that raises", stream(answers("raises", id="1"))),
    case(
        "an ensemble",
        stream(message("chain", ("A", ADD_SUB[0][1]), ("B", ADD_SUB[1][1]), outputs=["C"], id="1")),
    ),
    case(
        "text",
        stream(
            message(
                "text_stream",
                ("text_input", np.array([b"a"], np.object_)),
                ("count", np.array([2], np.int32)),
            )
        ),
    ),
    case("triton_grpc_error in a unary call", rpc("ModelInfer", message("unknown", X), metadata=ERROR)),
    case("an unary call afterwards", grpc_infer("versions", X)),
]
