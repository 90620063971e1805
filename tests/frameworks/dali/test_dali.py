import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali", reason="needs DALI: pip install 'halimede[dali]'")

from nvidia.dali import fn, types

from halimede.backends.base import InstanceSpec
from halimede.backends.dali.backend import DaliInstance
from halimede.backends.execution import execute
from halimede.core.datatypes import FP32
from halimede.core.errors import InternalError, InvalidArgumentError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Array
from tests.backends.helpers import Loaded, floats, request
from tests.backends.memory import resident_mb
from tests.frameworks.dali.dali_models import (
    decoder,
    doubler,
    framework,
    image,
    load,
    pnm,
    resizer,
    serialized,
)

BROKEN = np.frombuffer(b"not an image", np.uint8)[np.newaxis]
OUTPUT = 'output { name: "OUT" }'


def ask(*images: Array) -> InferRequest:
    """A request for these image files, which have one length."""
    return request({"IMAGE": np.concatenate(images)})


def answer(response: InferResponse) -> Array:
    assert response.error is None
    return response.outputs["OUT"].array


def run(model: Loaded, *requests: InferRequest) -> list[InferResponse]:
    """Their responses, from one execution as the engine does it."""
    batch = model.batch(*requests)
    execute(model.instance, batch)
    return list(batch.responses)


def test_an_image_of_any_size_is_decoded(tmp_path: Path) -> None:
    model = load(tmp_path, decoder(), OUTPUT)
    for height, width in ((2, 3), (50, 7), (1, 1)):
        pixels = image(height, width)
        assert np.array_equal(model(IMAGE=pnm(pixels))["OUT"], pixels[np.newaxis])


def test_requests_with_images_of_different_sizes_are_one_run(tmp_path: Path) -> None:
    model = load(tmp_path, resizer(), OUTPUT)
    files = [pnm(image(5, 6)), pnm(image(20, 10)), pnm(image(3, 4))]
    (expected,) = framework(resizer(), IMAGE=[file[0] for file in files])
    responses = model.run(*map(ask, files))
    assert [answer(response).shape for response in responses] == [(1, 3, 4, 3)] * 3
    for response, sample in zip(responses, expected, strict=True):
        assert np.array_equal(answer(response)[0], sample)


def test_outputs_of_different_shapes_go_back_to_their_requests(tmp_path: Path) -> None:
    model = load(tmp_path, decoder(), OUTPUT)
    pixels = [image(5, 6), image(2, 3), image(7, 1)]
    for response, expected in zip(model.run(*(ask(pnm(each)) for each in pixels)), pixels, strict=True):
        assert np.array_equal(answer(response), expected[np.newaxis])


def test_rows_of_one_request_are_stacked(tmp_path: Path) -> None:
    model = load(tmp_path, decoder(), OUTPUT)
    pixels = [image(4, 5, seed) for seed in range(3)]
    first, second = model.run(ask(*map(pnm, pixels)), ask(pnm(image(9, 9))))
    assert np.array_equal(answer(first), np.stack(pixels))
    assert answer(second).shape == (1, 9, 9, 3)


def test_rows_of_one_request_with_different_shapes_fail_it_alone(tmp_path: Path) -> None:
    model = load(tmp_path, decoder(), OUTPUT)
    # two files of one length: 2 × 6 and 6 × 2 pixels
    mixed, good = run(model, ask(pnm(image(2, 6)), pnm(image(6, 2))), ask(pnm(image(4, 4))))
    assert isinstance(mixed.error, InternalError)
    assert (
        "output 'OUT' has samples of the shapes [2, 6, 3], [6, 2, 3] for one request" in mixed.error.message
    )
    assert "requests of their own" in mixed.error.message
    assert answer(good).shape == (1, 4, 4, 3)


def test_a_broken_image_fails_only_its_own_request(tmp_path: Path) -> None:
    model = load(tmp_path, decoder(), OUTPUT)
    pixels = [image(4, 5), image(6, 7)]
    first, broken, last = run(model, ask(pnm(pixels[0])), ask(BROKEN), ask(pnm(pixels[1])))
    assert isinstance(broken.error, InvalidArgumentError)
    assert broken.error.message == (
        "dali error in nvidia.dali.fn.decoders.image: cannot decode the image: "
        "it is no image, or of a format that is not supported"
    )
    assert np.array_equal(answer(first)[0], pixels[0])
    assert np.array_equal(answer(last)[0], pixels[1])


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "it is empty"), (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00", "it is damaged or cut short")],
)
def test_an_image_that_cannot_be_decoded_says_why_and_the_next_one_is(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    model = load(tmp_path, decoder(), OUTPUT)
    with pytest.raises(InvalidArgumentError, match=f"cannot decode the image: {reason}"):
        model(IMAGE=np.frombuffer(content, np.uint8)[np.newaxis])
    assert model(IMAGE=pnm(image(2, 2)))["OUT"].shape == (1, 2, 2, 3)


def test_batches_of_every_size_up_to_the_largest(tmp_path: Path) -> None:
    model = load(tmp_path, doubler(), OUTPUT + " max_batch_size: 5")
    for size in range(1, 6):
        rows = np.arange(size * 3, dtype=np.float32).reshape(size, 3)
        assert np.array_equal(model(X=rows)["OUT"], rows * 2)


def test_the_configuration_may_batch_more_than_the_pipeline_says(tmp_path: Path) -> None:
    model = load(tmp_path, serialized_small(), OUTPUT + " max_batch_size: 20")
    rows = np.ones((20, 2), np.float32)
    assert np.array_equal(model(X=rows)["OUT"], rows * 2)


def serialized_small() -> bytes:
    return serialized(
        lambda: fn.external_source(name="X", dtype=types.FLOAT, ndim=1) * 2,
        batch_size=1,
        output_dtype=types.FLOAT,
        output_ndim=1,
    )


def test_a_batch_of_no_rows_is_an_error(tmp_path: Path) -> None:
    model = load(tmp_path, doubler(), OUTPUT)
    with pytest.raises(InvalidArgumentError, match="input byte size mismatch for input 'X'"):
        model(X=np.empty((0, 3), np.float32))
    (doubled,) = model(X=floats([1, 2])).values()
    assert doubled.tolist() == [[2, 4]]


def test_several_inputs_and_outputs_scalars_too(tmp_path: Path) -> None:
    def define() -> Any:
        x = fn.external_source(name="X", dtype=types.FLOAT, ndim=1)
        factor = fn.external_source(name="FACTOR", dtype=types.FLOAT, ndim=0)
        return x * factor, factor + 1, fn.cast(x, dtype=types.INT32)

    kinds: dict[str, Any] = {
        "output_dtype": [types.FLOAT, types.FLOAT, types.INT32],
        "output_ndim": [1, 0, 1],
    }
    model = load(tmp_path, serialized(define, **kinds), "".join(f'output {{ name: "{n}" }}' for n in "ABC"))
    first, second = model.run(
        request({"X": floats([1, 2], [3, 4]), "FACTOR": floats([10], [20])}),
        request({"X": floats([5.5]), "FACTOR": floats([2])}, ("C", "B")),
    )
    assert {name: tensor.array.tolist() for name, tensor in first.outputs.items()} == {
        "A": [[10, 20], [60, 80]],
        "B": [[11], [21]],
        "C": [[1, 2], [3, 4]],
    }
    assert {name: tensor.array.tolist() for name, tensor in second.outputs.items()} == {
        "B": [[3]],
        "C": [[6]],
    }


@pytest.mark.parametrize(
    ("number", "numpy"),
    [
        (types.UINT8, np.uint8),
        (types.UINT16, np.uint16),
        (types.UINT32, np.uint32),
        (types.UINT64, np.uint64),
        (types.INT8, np.int8),
        (types.INT16, np.int16),
        (types.INT32, np.int32),
        (types.INT64, np.int64),
        (types.FLOAT16, np.float16),
        (types.FLOAT, np.float32),
        (types.FLOAT64, np.float64),
        (types.BOOL, np.bool_),
    ],
)
def test_every_datatype_passes(tmp_path: Path, number: Any, numpy: type[np.generic]) -> None:
    def define() -> Any:
        return fn.copy(fn.external_source(name="X", dtype=number, ndim=2))

    model = load(tmp_path, serialized(define, output_dtype=number, output_ndim=2), OUTPUT)
    rows = np.array([[[0, 1, 100], [1, 0, 3]]]).astype(numpy)
    got = model(X=rows)["OUT"]
    assert got.dtype == numpy
    assert np.array_equal(got, rows)


def test_a_model_without_batch_dimension_takes_one_sample(tmp_path: Path) -> None:
    text = """
    input { name: "X" data_type: TYPE_FP32 dims: [-1] }
    output { name: "OUT" data_type: TYPE_FP32 dims: [-1] }
    """
    model = load(tmp_path, doubler(), text)
    assert model.config.max_batch_size == 0
    assert model(X=np.array([1, 2, 3], np.float32))["OUT"].tolist() == [2, 4, 6]


def test_samples_can_be_split_into_rows(tmp_path: Path) -> None:
    def define() -> Any:
        return fn.copy(fn.external_source(name="X", dtype=types.FLOAT, ndim=2))

    pipeline = serialized(define, output_dtype=types.FLOAT, output_ndim=2)
    split = 'parameters { key: "split_along_outer_axis" value { string_value: "OUT" } }'
    model = load(tmp_path, pipeline, OUTPUT + split)
    assert list(model.config.output[0].dims) == [-1]
    sent = [np.arange(12, dtype=np.float32).reshape(2, 3, 2), np.ones((1, 5, 2), np.float32)]
    first, second = model.run(*(request({"X": each}) for each in sent))
    assert np.array_equal(answer(first), sent[0].reshape(6, 2))
    assert np.array_equal(answer(second), sent[1][0])
    (alone,) = model.run(request({"X": sent[0]}))
    assert np.array_equal(answer(alone), sent[0].reshape(6, 2))


@pytest.mark.parametrize("dims", ["[2]", "[-1]", "[5]", "[-1, -1]"])
def test_outputs_are_what_the_pipeline_gives_whatever_is_configured(tmp_path: Path, dims: str) -> None:
    pipeline = serialized(lambda: fn.external_source(name="X", dtype=types.FLOAT, ndim=1) * 2)
    model = load(tmp_path, pipeline, f'output {{ name: "OUT" data_type: TYPE_INT32 dims: {dims} }}')
    (response,) = run(model, request({"X": floats([1, 2])}))
    tensor = response.outputs["OUT"]
    assert (tensor.datatype, tensor.array.tolist()) == (FP32, [[2, 4]])


def test_an_output_that_does_not_fit_its_reshape_fails_its_request(tmp_path: Path) -> None:
    pipeline = serialized(lambda: fn.external_source(name="X", dtype=types.FLOAT, ndim=1) * 2)
    reshaped = 'output { name: "OUT" data_type: TYPE_FP32 dims: [2, 1] reshape { shape: [2] } }'
    model = load(tmp_path, pipeline, reshaped)
    wrong, good = run(model, request({"X": floats([1, 2, 3])}), request({"X": floats([1, 2])}))
    assert isinstance(wrong.error, InternalError)
    assert wrong.error.message == "output tensor shape does not match size of output for 'OUT'"
    assert answer(good).tolist() == [[[2], [4]]]


def test_reshape_is_applied_to_both_sides(tmp_path: Path) -> None:
    text = """
    max_batch_size: 4
    input { name: "X" data_type: TYPE_FP32 dims: [2, 2] reshape { shape: [4] } }
    output { name: "OUT" data_type: TYPE_FP32 dims: [4, 1] reshape { shape: [4] } }
    """
    model = load(tmp_path, doubler(), text)
    assert model(X=np.ones((1, 2, 2), np.float32))["OUT"].tolist() == [[[2], [2], [2], [2]]]


def test_instances_run_side_by_side(tmp_path: Path) -> None:
    model = load(tmp_path, resizer(), OUTPUT)
    other = model.backend.create_instance(InstanceSpec("m_1", 1))
    files = {instance: pnm(image(30, 20, seed)) for seed, instance in enumerate((model.instance, other))}
    wrong: list[object] = []

    def ask_often(instance: Any) -> None:
        (expected,) = framework(resizer(), IMAGE=[files[instance][0]])
        for _ in range(50):
            batch = model.batch(ask(files[instance]))
            instance.execute(batch)
            if not np.array_equal(answer(batch.responses[0])[0], expected[0]):
                wrong.append(batch)

    threads = [threading.Thread(target=ask_often, args=(instance,)) for instance in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_models_with_different_pipelines_run_in_one_process(tmp_path: Path) -> None:
    first = load(tmp_path / "first", doubler(), OUTPUT)
    second = load(tmp_path / "second", resizer(), OUTPUT)
    first.close()
    assert second(IMAGE=pnm(image(5, 5)))["OUT"].shape == (1, 3, 4, 3)


def test_memory_is_flat_over_a_hundred_loads_and_unloads(tmp_path: Path) -> None:
    source = load(tmp_path, decoder(), OUTPUT)
    backend = source.backend
    files = [pnm(image(300, 400, seed)) for seed in range(4)]

    def once() -> None:
        instance = backend.create_instance(InstanceSpec("m_0"))
        assert isinstance(instance, DaliInstance)
        batch = source.batch(*map(ask, files))
        instance.execute(batch)
        instance.close()

    for _ in range(10):
        once()
    gc.collect()
    before = resident_mb()
    for _ in range(100):
        once()
    gc.collect()
    # a pipeline that stayed would take some 2 MB for these images alone
    assert resident_mb() - before < 20
