"""Requests of different shapes in one batch of a TensorFlow model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "halimede.backends.tensorflow.runtime", reason="needs TensorFlow: pip install 'halimede[tensorflow]'"
)

from halimede.backends.tensorflow.runtime import tf, v1
from halimede.core.datatypes import BF16, BYTES, Datatype
from tests.backends.helpers import Loaded, floats, request, strings, wire
from tests.frameworks.tensorflow.tensorflow_models import SAVED, frozen, load_saved, saved, spec
from tests.support.ragged import SEGMENTS, check_segments
from tests.support.server import start_server

RAGGED = """
    max_batch_size: 8
    input { name: "x" data_type: TYPE_FP32 dims: [-1, -1] allow_ragged_batch: true }
    output { name: "y" data_type: TYPE_FP32 dims: [-1, -1] }
    batch_output { target_name: "y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x" }
"""
ITEMS = 'batch_input { kind: BATCH_ITEM_SHAPE target_name: "shapes" data_type: TYPE_INT32 source_input: "x" }'


def segments(VALUES: Any, ENDS: Any) -> dict[str, Any]:  # noqa: N803
    """Sums of the pieces of a flat tensor that end at ENDS, and two times the tensor."""
    ids = tf.searchsorted(ENDS, tf.range(tf.shape(VALUES)[0]), side="right")
    sums = tf.math.unsorted_segment_sum(VALUES, ids, tf.shape(ENDS)[0])
    return {"SUM": tf.reshape(sums, [-1, 1]), "TWICE": VALUES * 2}


@pytest.mark.parametrize("place", ["process", "thread"])
def test_requests_of_different_shapes_share_a_batch(tmp_path: Path, place: str) -> None:
    saved(tmp_path, segments, [spec("VALUES", (None,)), spec("ENDS", (None,), tf.int32)])
    isolation = f'parameters {{ key: "isolation" value {{ string_value: "{place}" }} }}'
    (tmp_path / "m" / "config.pbtxt").write_text(SAVED + SEGMENTS + isolation)
    with start_server(tmp_path, ready=False) as server:
        server.wait_for("successfully loaded 'm'", 90)
        check_segments(server.http, "m")


@pytest.mark.parametrize("shape", [(None,), None], ids=["flat", "unknown"])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.string], ids=lambda dtype: dtype.name)
def test_ragged_inputs_have_any_datatype_also_of_a_rank_that_the_model_does_not_say(
    tmp_path: Path, shape: Any, dtype: Any
) -> None:
    datatype: Datatype | None = {tf.bfloat16: BF16, tf.string: BYTES}.get(dtype)
    text = RAGGED.replace("TYPE_FP32", datatype.config_name) if datatype else RAGGED
    model = load_saved(tmp_path, lambda x: {"y": tf.identity(x)}, [spec("x", shape, dtype)], text)
    values = [np.arange(6).reshape(1, 2, 3).astype(np.float32), np.ones((2, 1, 1), np.float32)]
    if datatype is BF16:
        values = [each.astype(BF16.numpy) for each in values]
    elif datatype is BYTES:
        values = [strings([b"one", b"two"]).reshape(1, 1, 2), strings([b""], [b"three"]).reshape(2, 1, 1)]
    answers = model.run(*[request({"x": wire(each, datatype)}) for each in values])
    assert [answer.outputs["y"].array.tolist() for answer in answers] == [each.tolist() for each in values]


@pytest.mark.parametrize("shape", [(None, 2), None], ids=["known", "unknown"])
def test_shapes_of_items_are_an_input_of_two_dimensions(tmp_path: Path, shape: Any) -> None:
    def weigh(x: Any, shapes: Any) -> dict[str, Any]:
        return {"y": x, "n": tf.cast(tf.reduce_prod(shapes, 1, keepdims=True), tf.float32)}

    text = RAGGED + ITEMS + 'output { name: "n" data_type: TYPE_FP32 dims: [1] }'
    model = load_saved(tmp_path, weigh, [spec("x", (None,)), spec("shapes", shape, tf.int32)], text)
    answers = model.run(
        request({"x": np.ones((1, 2, 3), np.float32)}), request({"x": np.ones((2, 1, 2), np.float32)})
    )
    assert [answer.outputs["n"].array.tolist() for answer in answers] == [[[6]], [[2], [2]]]


def test_a_frozen_graph_gives_its_outputs_in_any_shape(tmp_path: Path) -> None:
    def build() -> None:
        x = v1.placeholder(tf.float32, [None], "x")
        tf.stack([x, -x], 1, "y")

    text = RAGGED.replace("dims: [-1, -1]", "dims: [-1]", 1).replace("dims: [-1, -1]", "dims: [-1, 2]")
    model = Loaded(frozen(tmp_path, build, text))
    answers = model.run(request({"x": floats([1, 2])}), request({"x": floats([3])}))
    assert [answer.outputs["y"].array.tolist() for answer in answers] == [[[[1, -1], [2, -2]]], [[[3, -3]]]]


def test_an_unlisted_output_that_is_cut_has_the_dims_of_its_input_before_its_own(tmp_path: Path) -> None:
    text = RAGGED.replace('output { name: "y" data_type: TYPE_FP32 dims: [-1, -1] }', "")
    model = load_saved(tmp_path, lambda x: {"y": tf.stack([x, -x], 1)}, [spec("x", (None,))], text)
    assert [(entry.name, list(entry.dims)) for entry in model.config.output] == [("y", [-1, -1, 2])]
    assert model(x=np.ones((1, 3, 2), np.float32))["y"].shape == (1, 3, 2, 2)
