"""Ensembles: their configurations, and their answers."""

from collections.abc import Callable

from tests.conformance.asking import config, get, gone, index, infer, load, python_model, tensor, unload
from tests.conformance.case import Case, case
from tests.conformance.differences import MISSING_OUTPUT, NEEDED_MODEL_DELETED, NEEDED_MODEL_NAMED, Difference
from tests.conformance.sources import CONFIG, IDENTITY
from tests.conformance.steps import Files, Step

X = tensor("X", "INT32", [1, 2])
STEP = 'step [{ model_name: "@part" model_version: -1 input_map { key: "X" value: "X" } output_map { key: "OUT" value: "OUT" } }]'
IO = 'input [{ name: "X" data_type: TYPE_INT32 dims: [-1] }] output [{ name: "OUT" data_type: TYPE_INT32 dims: [-1] }]'


def ensemble(steps: str = STEP, io: str = IO, more: str = "") -> str:
    """The configuration of an ensemble."""
    return f'platform: "ensemble" {io} ensemble_scheduling {{ {steps} }} {more}'


def one(inputs: str, outputs: str, model: str = "@part", version: str = "model_version: -1") -> str:
    """A step; its maps as `X=X OUT=OUT`."""
    name = f'model_name: "{model}"' if model else ""
    maps = [("input_map", pair) for pair in inputs.split()] + [
        ("output_map", pair) for pair in outputs.split()
    ]
    texts = ['{} {{ key: "{}" value: "{}" }}'.format(kind, *pair.split("=")) for kind, pair in maps]
    return f"step [{{ {name} {version} {' '.join(texts)} }}]"


GOOD = {"X": "INT32"}
TEXTS: dict[str, str] = {
    "good": ensemble(),
    "two steps": ensemble(one("X=X", "OUT=middle") + one("X=middle", "OUT=OUT")),
    "the wrong order": ensemble(one("X=middle", "OUT=OUT") + one("X=X", "OUT=middle")),
    "no scheduling": f'platform: "ensemble" {IO}',
    "a backend": ensemble(more='backend: "python"'),
    "no steps": ensemble(""),
    "no model": ensemble(one("X=X", "OUT=OUT", model="")),
    "no version": ensemble(one("X=X", "OUT=OUT", version="")),
    "an unknown model": ensemble(one("X=X", "OUT=OUT", model="unknown_part")),
    "an unknown version": ensemble(one("X=X", "OUT=OUT", version="model_version: 9")),
    "no input map": ensemble(one("", "OUT=OUT")),
    "no output map": ensemble(one("X=X", "")),
    "an unknown input of a model": ensemble(one("X=X Y=X", "OUT=OUT")),
    "an unknown output of a model": ensemble(one("X=X", "OUT=OUT NO=other")),
    "an input that is not used": ensemble(io=IO + 'input [{ name: "Y" data_type: TYPE_INT32 dims: [-1] }]'),
    "an output that is not written": ensemble(
        io=IO + 'output [{ name: "Z" data_type: TYPE_INT32 dims: [-1] }]'
    ),
    "a tensor that nobody uses": ensemble(one("X=X", "OUT=middle") + one("X=X", "OUT=OUT")),
    "a tensor that nobody writes": ensemble(one("X=nobody", "OUT=OUT")),
    "a tensor written twice": ensemble(one("X=X", "OUT=OUT") + one("X=X", "OUT=OUT")),
    "an input mapped twice": ensemble(
        'step [{ model_name: "@part" model_version: -1 input_map { key: "X" value: "X" } input_map { key: "X" value: "X" } output_map { key: "OUT" value: "OUT" } }]'
    ),
    "another datatype of the input": ensemble(io=IO.replace("INT32", "INT64", 1)),
    "another datatype of the output": ensemble(
        io='input [{ name: "X" data_type: TYPE_INT32 dims: [-1] }] output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]'
    ),
    "another shape": ensemble(io=IO.replace("dims: [-1]", "dims: [-1, 2]", 1)),
    "a fixed shape": ensemble(io=IO.replace("dims: [-1]", "dims: [2]")),
    "a batch size too large": ensemble(more="max_batch_size: 4"),
    "instances": ensemble(more="instance_group [{ count: 1 }]"),
    "optimization": ensemble(more="optimization { priority: PRIORITY_MAX }"),
    "warm-up": ensemble(
        more='model_warmup [{ name: "w" batch_size: 1 inputs { key: "X" value { data_type: TYPE_INT32 dims: [1] zero_data: true } } }]'
    ),
    "dynamic batching": ensemble(more="dynamic_batching { }"),
    "no inputs": ensemble(io='output [{ name: "OUT" data_type: TYPE_INT32 dims: [-1] }]'),
    "no outputs": ensemble(io='input [{ name: "X" data_type: TYPE_INT32 dims: [-1] }]'),
    "decoupled": ensemble(more="model_transaction_policy { decoupled: true }"),
    "itself": ensemble(one("X=X", "OUT=OUT", model="@")),
    "an output map without value": ensemble(
        'step [{ model_name: "@part" model_version: -1 input_map { key: "X" value: "X" } output_map { key: "OUT" } }]'
    ),
}


def of(number: int, text: str) -> tuple[Step, ...]:
    """Write an ensemble and its part, load it, ask it, and unload both."""
    name = f"ensemble_{number}"
    part = f"{name}part"
    files = Files(name, {"config.pbtxt": text.replace("@", name), "1/.keep": ""})
    asked = (load(name), index(name, part), config(name), get(f"/v2/models/{name}"), infer(name, X))
    return (
        python_model(part, CONFIG, IDENTITY),
        files,
        *asked,
        unload(name),
        gone(name),
        unload(part),
        gone(part),
        index(name, part),
    )


def dependent(number: int, *steps: Step, source: str = IDENTITY) -> tuple[Step, ...]:
    """An ensemble and its part, some steps, and the unload of both."""
    name = f"dependent_{number}"
    part = f"{name}part"
    files = Files(name, {"config.pbtxt": ensemble().replace("@", name), "1/.keep": ""})
    return (
        python_model(part, CONFIG, source),
        files,
        *steps,
        unload(name),
        gone(name),
        unload(part),
        gone(part),
        index(name, part),
    )


BEFORE: dict[str, Callable[[str], tuple[Step, ...]]] = {
    "nothing is loaded": lambda _: (),
    "only the part is loaded": lambda name: (load(f"{name}part"),),
    "both are loaded": lambda name: (load(name),),
    "both are loaded by name": lambda name: (load(f"{name}part"), load(name)),
    "both were loaded": lambda name: (
        load(name),
        unload(name, {"parameters": {"unload_dependents": True}}),
        gone(name),
        gone(f"{name}part"),
    ),
    "the part was unloaded": lambda name: (
        load(name),
        unload(f"{name}part"),
        gone(f"{name}part"),
    ),
}
"""What is loaded before the model that an ensemble needs is deleted."""

WITHOUT_THE_PART: dict[str, Difference] = {
    "only the part is loaded": NEEDED_MODEL_DELETED,
    "both are loaded": NEEDED_MODEL_DELETED,
    "both are loaded by name": NEEDED_MODEL_DELETED,
    "both were loaded": NEEDED_MODEL_NAMED,
    "the part was unloaded": NEEDED_MODEL_NAMED,
}

CASES: list[Case] = [
    *(case(name, *of(number, text)) for number, (name, text) in enumerate(TEXTS.items())),
    case(
        "the part is unloaded",
        *dependent(
            1,
            load("dependent_1"),
            unload("dependent_1part"),
            gone("dependent_1part"),
            index("dependent_1", "dependent_1part"),
            infer("dependent_1", X),
        ),
    ),
    case(
        "dependents are unloaded",
        *dependent(
            2,
            load("dependent_2"),
            unload("dependent_2", {"parameters": {"unload_dependents": True}}),
            gone("dependent_2"),
            gone("dependent_2part"),
            index("dependent_2", "dependent_2part"),
        ),
    ),
    case(
        "dependents that were loaded by name stay",
        *dependent(
            3,
            load("dependent_3part"),
            load("dependent_3"),
            unload("dependent_3", {"parameters": {"unload_dependents": True}}),
            gone("dependent_3"),
            index("dependent_3", "dependent_3part"),
        ),
    ),
    case(
        "the part fails to load",
        *dependent(
            4,
            load("dependent_4"),
            index("dependent_4", "dependent_4part"),
            source="raise ValueError('broken')\n",
        ),
    ),
    case(
        "the part is loaded later",
        *dependent(5, load("dependent_5"), load("dependent_5part"), infer("dependent_5", X), source=IDENTITY),
    ),
    *(
        case(
            f"{name} and the part is deleted",
            *dependent(
                number,
                *before(f"dependent_{number}"),
                Files(f"dependent_{number}part", {".": None}),
                load(f"dependent_{number}"),
                index(f"dependent_{number}", f"dependent_{number}part"),
                infer(f"dependent_{number}", X),
                load(f"dependent_{number}part"),
                index(f"dependent_{number}", f"dependent_{number}part"),
            ),
            differs=WITHOUT_THE_PART.get(name),
        )
        for number, (name, before) in enumerate(BEFORE.items(), 6)
    ),
    case("an error of a step", infer("failing_chain", tensor("KIND", "BYTES", ["error"]))),
    case("a step that raises", infer("failing_chain", tensor("KIND", "BYTES", ["raises"]))),
    case("a step with a code", infer("failing_chain", tensor("KIND", "BYTES", ["code:NOT_FOUND"]))),
    case(
        "a step whose output is missing",
        infer("failing_chain", tensor("KIND", "BYTES", ["no_outputs"])),
        differs=MISSING_OUTPUT,
    ),
    case(
        "a step whose output has another type",
        infer("failing_chain", tensor("KIND", "BYTES", ["other_datatype"])),
    ),
    case(
        "a step whose output has another shape",
        infer("failing_chain", tensor("KIND", "BYTES", ["other_shape"])),
    ),
    case(
        "an id in the error of a step", infer("failing_chain", tensor("KIND", "BYTES", ["error"]), id="my id")
    ),
    case("statistics", infer("chain", tensor("A", "FP32", [[1, 2, 3]]), id="wrong")),
]
