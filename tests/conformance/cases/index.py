"""The index of the repository."""

from typing import Any

from tests.conformance.asking import get, index, post, rpc
from tests.conformance.case import Case, case
from tests.conformance.differences import READY_NAMED
from tests.conformance.steps import Files, Only

BODIES: tuple[Any, ...] = (
    b"",
    {},
    {"ready": True},
    {"ready": False},
    {"ready": "true"},
    {"ready": 1},
    {"ready": None},
    [],
    "nonsense",
    {"other": 1},
    b'{"ready":' + b"[" * 1000 + b"]" * 1000 + b"}",
)

NO_BOOLEAN = (4, 5, 6, 10)
"""Those of them whose `ready` is none."""


def status(answer: Any) -> Any:
    """The status and error of an index: its rows depend on what the other cases do."""
    return {path: value for path, value in answer.items() if path in ("status", "body.error")}


CASES: list[Case] = [
    *(
        case(
            f"{body!r}"[:60],
            index("add_sub", "versions", "chain", body=body),
            Only(post("/v2/repository/index", body), status),
            differs=READY_NAMED if number in NO_BOOLEAN else None,
        )
        for number, body in enumerate(BODIES)
    ),
    case("of a named repository", Only(post("/v2/repository/other/index"), status)),
    case("GET", get("/v2/repository/index")),
    case(
        "a model that was never loaded",
        Files("never_loaded", {"config.pbtxt": 'backend: "python"', "1/model.py": ""}),
        index("never_loaded"),
        index("never_loaded", body={"ready": True}),
    ),
    case("a directory that is no model", Files("no_model", {"text": "x"}), index("no_model")),
    case("a file beside the models", Files(".", {"file.txt": "x"}), index("file.txt")),
    case("a hidden directory", Files(".hidden", {"config.pbtxt": 'backend: "python"'}), index(".hidden")),
    case("by name over gRPC", rpc("RepositoryIndex", repository_name="other")),
]
