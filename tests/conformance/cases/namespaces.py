"""Models of equal names in several repositories (`--model-namespacing`)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.conformance.answers import Answer
from tests.conformance.asking import (
    config,
    get,
    gone,
    grpc_infer,
    infer,
    load,
    message,
    post,
    rpc,
    tensor,
    unload,
)
from tests.conformance.case import Case, case
from tests.conformance.differences import (
    IDENTIFIERS,
    NEEDED_MODELS_ONLY,
    OWN_REPOSITORY_FIRST,
    UNKNOWN_WITH_NAMESPACES,
)
from tests.conformance.servers import Setting
from tests.conformance.sources import CONFIG, IDENTITY
from tests.conformance.steps import Files, Only, Placed, Settled, Step, Stream, Until

NAMESPACES = Setting(
    flags=("--model-namespacing=true", "--model-control-mode=explicit"), models=("calls",), further=("b", "c")
)
X = tensor("X", "INT32", [1, 2])
ARRAY = np.array([1, 2], np.int32)
IO = 'input [{ name: "X" data_type: TYPE_INT32 dims: [-1] }] output [{ name: "OUT" data_type: TYPE_INT32 dims: [-1] }]'
FACTORS = {"": 1, "b": 10, "c": 100}
"""What the models of each repository multiply by; "" is the first one."""


def multiplies(name: str, further: str = "", configuration: str = CONFIG) -> Files:
    """A model that multiplies by its repository's factor."""
    source = IDENTITY.replace('"OUT", array', f'"OUT", array * np.int32({FACTORS[further]})')
    return Files(name, {"config.pbtxt": configuration, "1/model.py": source}, further)


def ensemble(name: str, part: str, further: str = "", more: str = "") -> Files:
    """An ensemble of one step."""
    text = f"""platform: "ensemble" {IO} ensemble_scheduling {{ step [{{ model_name: "{part}" model_version: -1 {more}
        input_map {{ key: "X" value: "X" }} output_map {{ key: "OUT" value: "OUT" }} }}] }}"""
    return Files(name, {"config.pbtxt": text, "1/.keep": ""}, further)


def rows(*models: str) -> Only:
    """The rows of those models in the index, sorted: there may be several of one name and version."""

    def sorted_rows(answer: Answer) -> Answer:
        found: dict[str, dict[str, Any]] = {}
        for path, value in answer.items():
            row, dot, member = path.partition("].")
            if dot:
                found.setdefault(row, {})[member] = value
        texts = sorted(json.dumps(row, sort_keys=True) for row in found.values() if row.get("name") in models)
        return {
            "status": answer.get("status"),
            **{f"row {number}": text for number, text in enumerate(texts)},
        }

    return Only(post("/v2/repository/index"), sorted_rows)


def identified(name: str, make: Callable[[str], Step], further: str = "") -> Placed:
    """A step that names a model by its identifier."""

    def with_identifier(repository: Path) -> Step:
        return make(f"{repository}::{name}")

    return Placed(with_identifier, further)


def asked(name: str) -> tuple[Step, ...]:
    """Each question about a model, over both protocols."""
    return (
        infer(name, X),
        infer(f"{name}/versions/1", X),
        infer(f"{name}/versions/7", X),
        get(f"/v2/models/{name}"),
        get(f"/v2/models/{name}/versions/1"),
        get(f"/v2/models/{name}/ready"),
        get(f"/v2/models/{name}/versions/1/ready"),
        get(f"/v2/models/{name}/stats"),
        get(f"/v2/models/{name}/versions/1/stats"),
        config(name),
        grpc_infer(name, ("X", ARRAY)),
        grpc_infer(name, ("X", ARRAY), version="1"),
        rpc("ModelMetadata", name=name),
        rpc("ModelReady", name=name),
        rpc("ModelReady", name=name, version="1"),
        rpc("ModelConfig", name=name),
        rpc("ModelStatistics", name=name),
        Stream((message(name, ("X", ARRAY)),)),
    )


def done(*names: str) -> tuple[Step, ...]:
    """Unload models, and wait until they are gone."""
    return (*(unload(name) for name in names), Until(rows(*names), all_gone))


def all_gone(answer: Answer) -> bool:
    """Whether no row of the index is of a model that is ready, or on its way."""
    return not any(state in str(row) for row in answer.values() for state in ("READY", "LOADING"))


IDENTIFIED: dict[str, Callable[[str], Step]] = {
    "infer": lambda name: grpc_infer(name, ("X", ARRAY)),
    "a stream": lambda name: Stream((message(name, ("X", ARRAY)),)),
    "metadata": lambda name: rpc("ModelMetadata", name=name),
    "ready": lambda name: rpc("ModelReady", name=name),
    "configuration": lambda name: rpc("ModelConfig", name=name),
    "statistics": lambda name: rpc("ModelStatistics", name=name),
    "load": lambda name: rpc("RepositoryModelLoad", model_name=name),
    "unload": lambda name: rpc("RepositoryModelUnload", model_name=name),
}
OVERRIDE = {
    "backend": "python",
    "max_batch_size": 2,
    "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [-1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]}],
}

CASES: list[Case] = [
    case(
        "two of a name",
        multiplies("two"),
        multiplies("two", "b"),
        rows("two"),
        load("two"),
        rows("two"),
        *asked("two"),
        *done("two"),
        *asked("two"),
        setting=NAMESPACES,
    ),
    case(
        "one of a name",
        multiplies("one", "b"),
        load("one"),
        rows("one"),
        *asked("one"),
        *done("one"),
        *asked("one"),
        setting=NAMESPACES,
    ),
    case(
        "a load over gRPC",
        multiplies("two_rpc"),
        multiplies("two_rpc", "b"),
        rpc("RepositoryModelLoad", model_name="two_rpc"),
        rows("two_rpc"),
        rpc("RepositoryModelUnload", model_name="two_rpc"),
        Until(rows("two_rpc"), all_gone),
        setting=NAMESPACES,
    ),
    *(
        case(
            f"an identifier: {what}",
            multiplies(f"id_{number}"),
            multiplies(f"id_{number}", "b"),
            load(f"id_{number}"),
            identified(f"id_{number}", make, "b"),
            rows(f"id_{number}"),
            *done(f"id_{number}"),
            differs=None if what == "statistics" else IDENTIFIERS,
            setting=NAMESPACES,
        )
        for number, (what, make) in enumerate(IDENTIFIED.items())
    ),
    case(
        "an identifier that is not loaded",
        multiplies("id_off"),
        multiplies("id_off", "b"),
        identified("id_off", lambda name: grpc_infer(name, ("X", ARRAY)), "b"),
        identified("id_off", lambda name: rpc("RepositoryModelLoad", model_name=name), "b"),
        rows("id_off"),
        *done("id_off"),
        differs=IDENTIFIERS,
        setting=NAMESPACES,
    ),
    case(
        "a name that is nowhere",
        load("nowhere"),
        unload("nowhere"),
        infer("nowhere", X),
        differs=UNKNOWN_WITH_NAMESPACES,
        setting=NAMESPACES,
    ),
    *(
        case(
            f"an ensemble of {what}",
            *(multiplies(f"part_{number}", further) for further in parts),
            ensemble(f"whole_{number}", f"part_{number}", "", more),
            load(f"whole_{number}"),
            rows(f"whole_{number}", f"part_{number}"),
            infer(f"whole_{number}", X),
            config(f"whole_{number}"),
            rpc("ModelConfig", name=f"whole_{number}"),
            load(f"part_{number}"),
            rows(f"whole_{number}", f"part_{number}"),
            infer(f"whole_{number}", X),
            *done(f"whole_{number}", f"part_{number}"),
            differs=meant,
            setting=NAMESPACES,
        )
        for number, (what, parts, more, meant) in enumerate(
            (
                ("its own repository", ("",), "", None),
                ("its own repository, where another has the name too", ("", "b"), "", NEEDED_MODELS_ONLY),
                ("another repository", ("b",), "", None),
                ("two others that have the name", ("b", "c"), "", NEEDED_MODELS_ONLY),
                ("no repository", (), "", None),
                (
                    "a namespace that it names itself",
                    ("", "b"),
                    'model_namespace: "elsewhere"',
                    NEEDED_MODELS_ONLY,
                ),
            )
        )
    ),
    case(
        "ensembles of equal names",
        *(multiplies("inner", further) for further in ("", "b")),
        *(ensemble("outer", "inner", further) for further in ("", "b")),
        load("outer"),
        rows("outer", "inner"),
        infer("outer", X),
        identified("outer", lambda name: grpc_infer(name, ("X", ARRAY)), "b"),
        *done("outer", "inner"),
        differs=IDENTIFIERS,
        setting=NAMESPACES,
    ),
    case(
        "an ensemble whose part is unloaded",
        *(multiplies("leaf", further) for further in ("", "b")),
        ensemble("tree", "leaf"),
        load("tree"),
        *done("leaf"),
        infer("tree", X),
        rows("tree", "leaf"),
        *done("tree"),
        differs=NEEDED_MODELS_ONLY,
        setting=NAMESPACES,
    ),
    case(
        "unload with dependents",
        *(multiplies("twig", further) for further in ("", "b")),
        ensemble("bush", "twig"),
        load("bush"),
        unload("bush", {"parameters": {"unload_dependents": True}}),
        gone("bush"),
        Settled(rows("bush", "twig")),
        *done("twig"),
        differs=NEEDED_MODELS_ONLY,
        setting=NAMESPACES,
    ),
    case(
        "one of two that cannot be loaded",
        multiplies("half"),
        Files("half", {"config.pbtxt": CONFIG, "1/model.py": "nonsense("}, "b"),
        load("half"),
        infer("half", X),
        *done("half"),
        setting=NAMESPACES,
        ignored=(r"reason", r"row \d"),
    ),
    case(
        "one of two whose configuration cannot be read",
        multiplies("bad"),
        multiplies("bad", "b", "nonsense {"),
        load("bad"),
        infer("bad", X),
        *done("bad"),
        setting=NAMESPACES,
    ),
    case(
        "another configuration for both",
        *(multiplies("over", further) for further in ("", "b")),
        load("over", {"parameters": {"config": json.dumps(OVERRIDE)}}),
        rows("over"),
        identified("over", lambda name: rpc("ModelConfig", name=name), "b"),
        identified("over", lambda name: rpc("ModelConfig", name=name)),
        *done("over"),
        differs=IDENTIFIERS,
        setting=NAMESPACES,
    ),
    case(
        "the second one comes later",
        multiplies("late"),
        load("late"),
        infer("late", X),
        multiplies("late", "b"),
        rows("late"),
        infer("late", X),
        load("late"),
        rows("late"),
        infer("late", X),
        Files("late", {"": None}, "b"),
        infer("late", X),
        load("late"),
        rows("late"),
        infer("late", X),
        *done("late"),
        setting=NAMESPACES,
    ),
    *(
        case(
            f"a model that calls {what}",
            *(multiplies(f"called_{number}", further) for further in parts),
            load(f"called_{number}"),
            load("calls"),
            infer(
                "calls",
                tensor(
                    "CALL",
                    "BYTES",
                    [
                        json.dumps(
                            {
                                "model": f"called_{number}",
                                "inputs": [["X", [1, 2], "int32"]],
                                "outputs": ["OUT"],
                            }
                        )
                    ],
                ),
            ),
            *done(f"called_{number}"),
            differs=meant,
            setting=NAMESPACES,
        )
        for number, (what, parts, meant) in enumerate(
            (
                ("the only one", ("b",), None),
                ("its own of two", ("", "b"), OWN_REPOSITORY_FIRST),
                ("one of two others", ("b", "c"), None),
            )
        )
    ),
    case(
        "settings of tracing",
        *(multiplies("traced", further) for further in ("", "b")),
        load("traced"),
        get("/v2/models/traced/trace/setting"),
        post("/v2/models/traced/trace/setting", {"trace_rate": "3"}),
        rpc("TraceSetting", model_name="traced"),
        post("/v2/models/traced/trace/setting", {"trace_rate": None}),
        *done("traced"),
        setting=NAMESPACES,
    ),
    case(
        "generate",
        *(multiplies("generated", further) for further in ("", "b")),
        load("generated"),
        post("/v2/models/generated/generate", {"X": [1, 2]}),
        post("/v2/models/generated/generate_stream", {"X": [1, 2]}),
        *done("generated"),
        setting=NAMESPACES,
    ),
]
