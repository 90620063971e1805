"""Ensembles of real models, on a real event loop."""

import numpy as np

from halimede.core.datatypes import INT32, UINT32
from halimede.core.tensors import Tensor
from tests.engine.ensembles.fakes import parse, ports, step
from tests.engine.ensembles.world import World, chain, identity, row

REPEAT = parse(
    'name: "repeat" backend: "repeat" model_transaction_policy { decoupled: true } '
    f"{ports('input', 'IN', '-1', 'TYPE_INT32')} {ports('input', 'DELAY', '-1', 'TYPE_UINT32')} "
    f"{ports('input', 'WAIT', '1', 'TYPE_UINT32')} {ports('output', 'OUT', '1', 'TYPE_INT32')} "
    f"{ports('output', 'IDX', '1', 'TYPE_UINT32')}"
)
SQUARE = parse(
    'name: "square" backend: "square" model_transaction_policy { decoupled: true } '
    f"{ports('input', 'IN', '1', 'TYPE_INT32')} {ports('output', 'OUT', '1', 'TYPE_INT32')}"
)


def test_the_bytes_of_a_tensor_pass_through_all_steps_uncopied(world: World) -> None:
    for name in "abc":
        world.load(identity(name))
    inputs = row(7)
    ((response,),) = world.infer(world.compose(chain("a", "b", "c")), inputs)
    assert response.error is None
    assert response.outputs["Y"] is inputs["X"]
    assert response.outputs["Y"].data is inputs["X"].data


def test_requests_to_an_ensemble_share_the_batches_of_its_models(world: World) -> None:
    for name in "ab":
        world.load(identity(name, "dynamic_batching { }"))
    made = world.compose(chain("a", "b"))
    answers = world.infer(made, *(row(value) for value in range(8)))
    for value, (response,) in enumerate(answers):
        assert response.outputs["Y"].array.tolist() == [[value] * 4]
    assert list(world.models["a"].statistics.batches) == [8]
    assert list(world.models["b"].statistics.batches) == [8]
    assert made.statistics.success.count == 8
    assert made.statistics.execution_count == 8


def vector(*numbers: int) -> Tensor:
    return Tensor.from_array(INT32, np.array(numbers, np.int32))


def test_a_stream_of_a_stream_comes_in_order(world: World) -> None:
    world.load(REPEAT)
    world.load(SQUARE)
    config = parse(
        f'name: "e" platform: "ensemble" {ports("input", "X", "-1", "TYPE_INT32")} '
        f"{ports('input', 'D', '-1', 'TYPE_UINT32')} {ports('input', 'W', '1', 'TYPE_UINT32')} "
        f"{ports('output', 'Y', '1', 'TYPE_INT32')} ensemble_scheduling {{ "
        f"{step('repeat', 'IN=X DELAY=D WAIT=W', 'OUT=t')} {step('square', 'IN=t', 'OUT=Y')} "
        f"max_inflight_requests: 2 }}"
    )
    made = world.compose(config)
    inputs = {
        "X": vector(2, 0, 3, 1),
        "D": Tensor.from_array(UINT32, np.zeros(4, np.uint32)),
        "W": Tensor.from_array(UINT32, np.zeros(1, np.uint32)),
    }
    (responses,) = world.infer(made, inputs)
    assert [int(each.outputs["Y"].array[0]) for each in responses] == [2, 2, 3, 3, 3, 1]
    assert made.statistics.success.count == 1
    assert world.models["square"].statistics.success.count == 4
