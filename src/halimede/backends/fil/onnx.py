"""A forest as an ONNX graph.

ONNX Runtime walks trees several times faster than treelite itself does, at every batch size, and its runs can
be bound to buffers and run on the event loop like those of any small ONNX model.
"""

from typing import Any

import numpy as np
import onnx
import treelite
from onnx import TensorProto, helper

from halimede.backends.fil.forest import ForestSpec, OutputForm
from halimede.core.tensors import Array

INPUT = "input__0"
OUTPUT = "output__0"

_LEAF, _NUMERICAL = 0, 1
_MODES = {2: "BRANCH_LT", 3: "BRANCH_LEQ", 4: "BRANCH_GT", 5: "BRANCH_GTE"}
_ROUNDED_DOWN = ("BRANCH_LEQ", "BRANCH_GT")

_MAX_NODES = 20_000_000
"""Of larger forests the graph would near the 2 GiB that a message may have."""

_POSTPROCESSORS = {
    "identity": "",
    "identity_multiclass": "",
    "sigmoid": "Sigmoid",
    "multiclass_ova": "Sigmoid",
    "softmax": "Softmax",
    "exponential": "Exp",
    "logarithm_one_plus_exp": "Softplus",
}
"""Treelite's postprocessors → the operators that do the same."""


def to_onnx(forest: treelite.Model, spec: ForestSpec, form: OutputForm) -> onnx.ModelProto | None:
    """The graph, from ``input__0`` of shape ``[rows, features]`` to ``output__0`` of shape ``[rows, width]``.

    None for a forest that ONNX has no words for: one with categorical splits, several targets or a rare
    postprocessor.
    """
    if spec.targets > 1 or spec.postprocessor not in _POSTPROCESSORS:
        return None
    attributes = _trees(forest, spec)
    if attributes is None:
        return None
    ensemble = helper.make_node("TreeEnsembleRegressor", [INPUT], ["sums"], domain="ai.onnx.ml")
    ensemble.attribute.extend(attributes)
    graph = _Graph([ensemble])
    graph.postprocess(forest, spec)
    graph.shape(spec, form)
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "forest",
            [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["rows", spec.features])],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["rows", form.width(spec)])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)],
    )
    model.ir_version = 8
    return model


class _Graph:
    """Nodes one after the other, each of which takes what the one before it gives.

    Attributes:
        nodes: of the graph.
        constants: what they take besides.
    """

    def __init__(self, nodes: list[onnx.NodeProto]) -> None:
        self.nodes = nodes
        self.constants: list[TensorProto] = []

    def postprocess(self, forest: treelite.Model, spec: ForestSpec) -> None:
        """Turn the sums of leaves into scores."""
        operator = _POSTPROCESSORS[spec.postprocessor]
        if not operator:
            return
        if operator == "Sigmoid":
            alpha = float(forest.get_header_accessor().get_field("sigmoid_alpha")[0])
            if alpha != 1:
                self._add("Mul", self._constant("alpha", alpha))
        if operator == "Softmax":
            self._add(operator, axis=1)
        else:
            self._add(operator)

    def shape(self, spec: ForestSpec, form: OutputForm) -> None:
        """Turn the scores into the output, as `OutputForm.apply` does."""
        last = self.nodes[-1].output[0]
        if form.both:
            self.nodes.append(helper.make_node("Sub", [self._constant("one", 1.0), last], ["other"]))
            self.nodes.append(helper.make_node("Concat", ["other", last], [OUTPUT], axis=1))
            return
        if form.as_class:
            if spec.scores == 1 or form.threshold is not None:
                if spec.scores == 2:
                    self.constants.append(helper.make_tensor("second", TensorProto.INT64, [1], [1]))
                    self.nodes.append(helper.make_node("Gather", [last, "second"], ["score"], axis=1))
                threshold = 0.5 if form.threshold is None else form.threshold
                self._add("Greater", self._constant("threshold", threshold))
            else:
                self._add("ArgMax", axis=1, keepdims=1)
            self._add("Cast", to=TensorProto.FLOAT)
        self.nodes[-1].output[0] = OUTPUT

    def _add(self, operator: str, *constants: str, **attributes: Any) -> None:
        last = self.nodes[-1].output[0]
        self.nodes.append(
            helper.make_node(operator, [last, *constants], [f"value_{len(self.nodes)}"], **attributes)
        )

    def _constant(self, name: str, value: float) -> str:
        self.constants.append(helper.make_tensor(name, TensorProto.FLOAT, [1], [value]))
        return name


def _trees(forest: treelite.Model, spec: ForestSpec) -> list[onnx.AttributeProto] | None:
    """The attributes of a TreeEnsembleRegressor (ai.onnx.ml 3), or None if it cannot express a node."""
    header = forest.get_header_accessor()
    classes = np.asarray(header.get_field("class_id"))
    weights = _weights(forest, classes, spec)
    columns: dict[str, list[Array]] = {}
    modes: list[str] = []
    for index in range(forest.num_tree):
        tree = forest.get_tree_accessor(index)
        kinds = tree.get_field("node_type")
        leaves = kinds == _LEAF
        tests = ~leaves
        comparisons = tree.get_field("cmp")
        if not np.isin(kinds, (_LEAF, _NUMERICAL)).all() or not np.isin(comparisons[tests], [*_MODES]).all():
            return None
        _check_tree(tree, tests, spec)
        tree_modes = [
            "LEAF" if leaf else _MODES[each] for leaf, each in zip(leaves, comparisons, strict=True)
        ]
        modes += tree_modes
        if len(modes) > _MAX_NODES:
            return None
        numbers, places = np.arange(len(kinds)), np.flatnonzero(leaves)
        down = np.isin(tree_modes, _ROUNDED_DOWN)
        values, targets = _leaf_values(tree, places, int(classes[index]), spec)
        added = {
            "nodes_treeids": np.full(len(kinds), index),
            "nodes_nodeids": numbers,
            "nodes_featureids": np.where(tests, tree.get_field("split_index"), 0),
            "nodes_values": np.where(tests, _rounded(tree.get_field("threshold"), down), 0),
            "nodes_truenodeids": np.where(tests, tree.get_field("cleft"), 0),
            "nodes_falsenodeids": np.where(tests, tree.get_field("cright"), 0),
            "nodes_missing_value_tracks_true": np.where(tests, tree.get_field("default_left"), 0),
            "target_treeids": np.full(values.size, index),
            "target_nodeids": np.repeat(places, values.shape[1]),
            "target_ids": np.tile(targets, len(places)),
            "target_weights": (values * weights[targets]).reshape(-1),
        }
        for key, column in added.items():
            columns.setdefault(key, []).append(column)
    attributes = [_attribute(key, np.concatenate(column)) for key, column in columns.items()]
    base = np.asarray(header.get_field("base_scores"))
    attributes += [
        helper.make_attribute("nodes_modes", modes),
        helper.make_attribute("n_targets", spec.scores),
        _attribute("base_values", base.astype(np.float64)),
    ]
    return attributes


def _check_tree(tree: Any, tests: Array, spec: ForestSpec) -> None:
    """Refuse a tree whose walk would not end, or would leave the row: nothing else would notice.

    Raises:
        ValueError: a node has several parents or a place outside of the tree, or it tests no feature of a row.
    """
    features = tree.get_field("split_index")[tests]
    children = np.concatenate([tree.get_field("cleft")[tests], tree.get_field("cright")[tests]])
    if ((features < 0) | (features >= spec.features)).any():
        raise ValueError(f"a node tests a feature that is none of the {spec.features}")
    if ((children < 1) | (children >= len(tests))).any() or len(np.unique(children)) < len(children):
        raise ValueError("the nodes of a tree do not form a tree")


def _weights(forest: treelite.Model, classes: Array, spec: ForestSpec) -> Array:
    """What leaves of each class count for: 1, or where trees are averaged one by their number."""
    if not forest.get_header_accessor().get_field("average_tree_output")[0]:
        return np.ones(spec.scores)
    trees = [np.count_nonzero((classes == each) | (classes < 0)) for each in range(spec.scores)]
    return 1 / np.maximum(trees, 1)


def _leaf_values(tree: Any, places: Array, class_number: int, spec: ForestSpec) -> tuple[Array, Array]:
    """The values of the leaves, of shape ``[leaves, targets]``, and the targets that they are for."""
    vectors = tree.get_field("leaf_vector")
    if not vectors.size:
        scalars = tree.get_field("leaf_value")[places].astype(np.float64)[:, None]
        return scalars, np.array([max(class_number, 0)])
    starts = tree.get_field("leaf_vector_begin")[places].astype(np.int64)
    if class_number >= 0:
        return vectors[starts].astype(np.float64)[:, None], np.array([class_number])
    targets = np.arange(spec.scores)
    return vectors[starts[:, None] + targets].astype(np.float64), targets


def _rounded(thresholds: Array, down: Array) -> Array:
    """FP32 thresholds that divide the FP32 numbers as the given ones do.

    x ≤ t and x > t are unchanged if t becomes the next number below that is FP32; x < t and x ≥ t, above.
    """
    with np.errstate(over="ignore"):
        near = thresholds.astype(np.float32)
    exact = near.astype(np.float64)
    lower = np.nextafter(near, np.float32(-np.inf))
    upper = np.nextafter(near, np.float32(np.inf))
    rounded: Array = np.where(
        down, np.where(exact > thresholds, lower, near), np.where(exact < thresholds, upper, near)
    )
    return rounded


def _attribute(name: str, column: Array) -> onnx.AttributeProto:
    attribute = onnx.AttributeProto(name=name)
    if column.dtype.kind == "f":
        attribute.type = onnx.AttributeProto.FLOATS
        attribute.floats.extend(column.tolist())
    else:
        attribute.type = onnx.AttributeProto.INTS
        attribute.ints.extend(column.tolist())
    return attribute
