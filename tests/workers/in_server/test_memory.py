"""When tensors are handed on between the server and a model in its process, and when they are copied."""

import numpy as np
import pytest

from halimede.core.buffers import POOL
from halimede.core.datatypes import BYTES, FP32
from halimede.core.tensors import Array, Tensor
from halimede.workers.in_server.memory import ModelMemory, ServerMemory
from halimede_worker import responses
from halimede_worker.tensors import tensors

LARGE = 50_000
SMALL = 100


def sent(*outputs: tensors.Tensor) -> list[Tensor]:
    """What the server gets of a model's response."""
    response = responses.InferenceResponse(list(outputs))
    del outputs
    encoded, _, _ = responses.encode_response(response, None, ModelMemory().outgoing())
    return [ServerMemory().tensor(each) for each in encoded]


def received(tensor: Tensor) -> tensors.Tensor:
    """What a model gets of the server's tensor."""
    return tensors.decode_tensor(ServerMemory().outgoing().tensor("x", tensor), ModelMemory())


def address(array: Array) -> int:
    begin: int = array.__array_interface__["data"][0]
    return begin


def test_a_large_output_that_nothing_else_refers_to_is_not_copied() -> None:
    array = np.arange(LARGE, dtype=np.float32)
    begin = address(array)
    made = tensors.Tensor("x", array)
    del array
    response = responses.InferenceResponse([made])
    del made
    encoded, _, _ = responses.encode_response(response, None, ModelMemory().outgoing())
    tensor = ServerMemory().tensor(encoded[0])
    assert address(tensor.array) == begin
    assert tensor.array[-1] == LARGE - 1


@pytest.mark.parametrize("keeps", ["the array", "the tensor", "what the array is a view of"])
def test_an_output_that_the_model_keeps_is_copied(keeps: str) -> None:
    array = np.zeros(LARGE, np.float32)
    made = tensors.Tensor("x", array[1:] if keeps.startswith("what") else array)
    kept = made if keeps == "the tensor" else array
    if keeps == "the tensor":
        del array
    (tensor,) = sent(made)
    written = kept.as_numpy() if isinstance(kept, tensors.Tensor) else kept
    written[:] = 5
    assert not tensor.array.any()


def test_a_small_output_is_copied() -> None:
    array = np.zeros(SMALL, np.float32)
    (tensor,) = sent(tensors.Tensor("x", array))
    array[:] = 5
    assert not tensor.array.any()


def test_texts_travel_as_bytes() -> None:
    (tensor,) = sent(tensors.Tensor("x", np.array([b"a", b"b" * 40_000], np.object_)))
    assert tensor.datatype is BYTES
    assert tensor.array.tolist() == [b"a", b"b" * 40_000]
    assert received(tensor).as_numpy().tolist() == [b"a", b"b" * 40_000]


def test_what_was_received_for_the_model_alone_is_not_copied() -> None:
    body = POOL.take(4 * LARGE)
    array = received(Tensor(FP32, (LARGE,), body)).as_numpy()
    array[:] = 3
    assert np.frombuffer(body, np.float32)[0] == 3


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("of", ["an array", "bytes", "a body that others read, too"])
def test_what_others_may_read_is_copied_before_it_is_written_to(of: str, size: int) -> None:
    array = np.zeros(size, np.float32)
    tensor = {
        "an array": Tensor.from_array(FP32, array),
        "bytes": Tensor(FP32, (size,), array.tobytes()),
        "a body that others read, too": Tensor(FP32, (size,), POOL.take(4 * size)),
    }[of]
    if of.startswith("a body"):
        np.frombuffer(tensor.data, np.float32)[:] = 0
        tensor.shared = True
    received(tensor).as_numpy()[:] = 5
    assert not tensor.array.any()
