"""Warm-up."""

from tests.conformance.asking import config, get, index, infer, loaded, tensor
from tests.conformance.case import Case, case
from tests.conformance.differences import OUTSIDE_THE_REPOSITORY
from tests.conformance.sources import CONFIG, IDENTITY, executing
from tests.conformance.steps import Files, Step


def sample(inputs: str, more: str = 'name: "sample" batch_size: 1') -> str:
    """A configuration with one sample."""
    return f"{CONFIG} model_warmup [{{ {more} {inputs} }}]"


def data(members: str, name: str = "X") -> str:
    """An input of a sample."""
    return f'inputs {{ key: "{name}" value {{ {members} }} }}'


ZERO = data("data_type: TYPE_INT32 dims: [2] zero_data: true")
RAISING = executing("        raise ValueError('while warmed up')")
REFUSING = executing(
    "        return [pb_utils.InferenceResponse(error=pb_utils.TritonError('refused')) for _ in requests]"
)
TEXTS: dict[str, tuple[str, str]] = {
    "zeros": (sample(ZERO), IDENTITY),
    "random": (sample(data("data_type: TYPE_INT32 dims: [2] random_data: true")), IDENTITY),
    "a file": (sample(data('data_type: TYPE_INT32 dims: [2] input_data_file: "eight"')), IDENTITY),
    "a file that is missing": (
        sample(data('data_type: TYPE_INT32 dims: [2] input_data_file: "none"')),
        IDENTITY,
    ),
    "a file that is too short": (
        sample(data('data_type: TYPE_INT32 dims: [4] input_data_file: "eight"')),
        IDENTITY,
    ),
    "a file that is too long": (
        sample(data('data_type: TYPE_INT32 dims: [1] input_data_file: "eight"')),
        IDENTITY,
    ),
    "a file outside": (
        sample(data('data_type: TYPE_INT32 dims: [2] input_data_file: "../config.pbtxt"')),
        IDENTITY,
    ),
    "no data": (sample(data("data_type: TYPE_INT32 dims: [2]")), IDENTITY),
    "no dims": (sample(data("data_type: TYPE_INT32 zero_data: true")), IDENTITY),
    "a variable dimension": (sample(data("data_type: TYPE_INT32 dims: [-1] zero_data: true")), IDENTITY),
    "no datatype": (sample(data("dims: [2] zero_data: true")), IDENTITY),
    "another datatype": (sample(data("data_type: TYPE_FP32 dims: [2] zero_data: true")), IDENTITY),
    "another rank": (sample(data("data_type: TYPE_INT32 dims: [2, 2] zero_data: true")), IDENTITY),
    "an unknown input": (sample(data("data_type: TYPE_INT32 dims: [2] zero_data: true", "Y")), IDENTITY),
    "an input too many": (
        sample(ZERO + data("data_type: TYPE_INT32 dims: [2] zero_data: true", "Y")),
        IDENTITY,
    ),
    "no name": (sample(ZERO, "batch_size: 1"), IDENTITY),
    "batch size 0": (sample(ZERO, 'name: "sample" batch_size: 0'), RAISING),
    "no batch size": (sample(ZERO, 'name: "sample"'), RAISING),
    "batch size 2 without batching": (sample(ZERO, 'name: "sample" batch_size: 2'), IDENTITY),
    "a count": (sample(ZERO, 'name: "sample" batch_size: 1 count: 3'), IDENTITY),
    "a model that raises": (sample(ZERO), RAISING),
    "a model that refuses": (sample(ZERO), REFUSING),
    "batch size 2": (
        sample(data("data_type: TYPE_INT32 dims: [1] zero_data: true"), 'name: "sample" batch_size: 2')
        + "max_batch_size: 4",
        IDENTITY,
    ),
    "a batch size too large": (
        sample(data("data_type: TYPE_INT32 dims: [1] zero_data: true"), 'name: "sample" batch_size: 5')
        + "max_batch_size: 4",
        IDENTITY,
    ),
    "two samples": (sample(ZERO) + f'model_warmup [{{ name: "second" batch_size: 1 {ZERO} }}]', IDENTITY),
}


def warmed(number: int, text: str, source: str) -> tuple[Step, ...]:
    """A model with samples: its load, statistics and metrics."""
    name = f"warm_{number}"
    steps = (
        index(name),
        config(name),
        get(f"/v2/models/{name}/stats"),
        infer(name, tensor("X", "INT32", [1])),
    )
    return (
        Files(name, {"warmup/eight": b"\x01\x00\x00\x00\x02\x00\x00\x00"}),
        *loaded(name, text, source, *steps),
    )


CASES: list[Case] = [
    case(
        name,
        *warmed(number, text, source),
        differs=OUTSIDE_THE_REPOSITORY if name == "a file outside" else None,
    )
    for number, (name, (text, source)) in enumerate(TEXTS.items())
]
