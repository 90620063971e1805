"""Which file a forest is read from, and what is said of files that are none."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

treelite = pytest.importorskip("treelite", reason="forests need treelite")
xgboost = pytest.importorskip("xgboost", reason="forests of XGBoost are trained with xgboost")

from halimede.core.errors import HalimedeError, InvalidArgumentError, NotFoundError, UnsupportedError  # noqa: E402
from tests.frameworks.fil.fil_models import data, load_forest, parameter, predict  # noqa: E402
from tests.frameworks.fil.test_fil import boosted, truth  # noqa: E402
from tests.support.foreign_files import each_foreign_file  # noqa: E402

SUFFIXES = {
    "xgboost_ubj": "ubj",
    "xgboost_json": "json",
    "xgboost": "model",
    "lightgbm": "txt",
    "treelite_checkpoint": "tl",
}


def legacy(path: Path) -> None:
    """Write a booster in the binary format that XGBoost 3.1 has stopped writing (`src/learner.cc`, up to 3.0)."""
    booster = boosted("binary", "binary:logistic", base_score=0.5)
    model = json.loads(booster.save_raw("json"))["learner"]
    trees = model["gradient_booster"]["model"]["trees"]
    features = booster.num_features()
    objective, kind = b"binary:logistic", b"gbtree"
    parts = [
        struct.pack("<fIiiiIIIi100x", 0.5, features, 0, 0, 0, 1, 7, 1, 0),
        struct.pack("<Q", len(objective)) + objective,
        struct.pack("<Q", len(kind)) + kind,
        struct.pack("<iiiiqii128x", len(trees), 1, features, 0, 0, 1, 0),
    ]
    for tree in trees:
        nodes = len(tree["left_children"])
        parts.append(struct.pack("<6i124x", 1, nodes, 0, 0, features, 0))
        for index in range(nodes):
            split = tree["split_indices"][index] | tree["default_left"][index] << 31
            left, right = tree["left_children"][index], tree["right_children"][index]
            up = tree["parents"][index]
            parts.append(struct.pack("<iiiIf", up, left, right, split, tree["split_conditions"][index]))
        parts += [struct.pack("<fffi", 0, 0, 0, 0)] * nodes
    parts.append(struct.pack(f"<{len(trees)}i", *([0] * len(trees))))
    path.write_bytes(b"".join(parts))


def test_the_old_binary_format_predicts_as_xgboost_does(tmp_path: Path) -> None:
    model = load_forest(tmp_path, "xgboost.model", legacy)
    features, _ = data("binary")
    wanted = truth(boosted("binary", "binary:logistic", base_score=0.5), features)
    np.testing.assert_allclose(predict(model, features), wanted, atol=1e-5)


@pytest.mark.parametrize("written", ["ubj", "json"])
def test_a_newer_format_under_the_old_name_is_read_as_what_it_is(tmp_path: Path, written: str) -> None:
    booster = boosted("binary", "binary:logistic")
    content = booster.save_raw(written)
    model = load_forest(tmp_path, "xgboost.model", lambda path: path.write_bytes(content))
    features, _ = data("binary")
    np.testing.assert_allclose(predict(model, features), truth(booster, features), atol=1e-5)


def test_the_parameter_or_the_suffix_tells_the_format_of_a_file_of_another_name(tmp_path: Path) -> None:
    booster = boosted("binary", "binary:logistic")
    content = booster.save_raw("json")
    for filename, config in (
        ("mine.json", ""),
        ("mine", parameter("model_type", "xgboost_json")),
        ("mine.txt", parameter("model_type", "xgboost_json")),
    ):
        config += f'default_model_filename: "{filename}"'
        model = load_forest(tmp_path / filename, filename, lambda path: path.write_bytes(content), config)
        assert predict(model, data("binary")[0][:1]).shape == (1, 1)


def test_a_name_that_tells_no_format_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidArgumentError, match="set the parameter 'model_type' to one of xgboost_ubj, xgboost"
    ):
        load_forest(tmp_path, "mine", lambda path: path.touch(), 'default_model_filename: "mine"')


def test_a_missing_file_is_said_with_the_names_that_were_looked_for(tmp_path: Path) -> None:
    with pytest.raises(
        NotFoundError, match=r"there is none of xgboost\.ubj, xgboost\.json, xgboost\.model, model\.txt"
    ):
        load_forest(tmp_path, "other", lambda path: path.touch())
    with pytest.raises(
        NotFoundError, match=r"there is no file .*/model\.txt; expected a LightGBM text model there"
    ):
        load_forest(tmp_path, "xgboost.ubj", lambda path: path.touch(), parameter("model_type", "lightgbm"))


@pytest.mark.parametrize("filename", ["model.pkl", "model.joblib"])
def test_a_pickle_is_never_read(tmp_path: Path, filename: str) -> None:
    config = f'default_model_filename: "{filename}"'
    with pytest.raises(UnsupportedError, match=r"is a pickle, which can run any code .*import_model"):
        load_forest(tmp_path, filename, lambda path: path.touch(), config)


def test_an_unknown_model_type_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"parameter 'model_type' must be one of 'xgboost_ubj', .* got 'onnx'"
    ):
        load_forest(tmp_path, "xgboost.json", lambda path: path.touch(), parameter("model_type", "onnx"))


@pytest.mark.parametrize("model_type", SUFFIXES)
@pytest.mark.parametrize("content", ["nothing", "text", "of another format", "truncated"])
def test_a_file_that_is_no_forest_is_refused(tmp_path: Path, model_type: str, content: str) -> None:
    booster = boosted("binary", "binary:logistic")
    legacy(tmp_path / "old")
    whole = {
        "xgboost_ubj": bytes(booster.save_raw("ubj")),
        "xgboost_json": bytes(booster.save_raw("json")),
        "xgboost": (tmp_path / "old").read_bytes(),
        "lightgbm": b"tree\nversion=v4\nnum_class=1\nmax_feature_idx=3\nobjective=binary\nTree=0\nnum_leaves=2",
        "treelite_checkpoint": _checkpoint(booster),
    }
    other = "xgboost_json" if model_type != "xgboost_json" else "xgboost_ubj"
    bad = {
        "nothing": b"",
        "text": b"not a forest\n",
        "of another format": whole[other] if model_type != "xgboost" else whole["lightgbm"],
        "truncated": whole[model_type][: len(whole[model_type]) * 3 // 4],
    }[content]
    filename = f"mine.{SUFFIXES[model_type]}"
    config = f'default_model_filename: "{filename}"\n' + parameter("model_type", model_type)
    with pytest.raises(
        HalimedeError, match=r"unable to load model 'm': .* is not a.*, or is damaged: ."
    ) as caught:
        load_forest(tmp_path, filename, lambda path: path.write_bytes(bad), config)
    assert "\n" not in caught.value.message
    assert "/project/src" not in caught.value.message


def test_a_forest_without_trees_is_refused(tmp_path: Path) -> None:
    content = json.loads(boosted("binary", "binary:logistic").save_raw("json"))
    part = content["learner"]["gradient_booster"]["model"]
    part["trees"], part["tree_info"] = [], []
    part["gbtree_model_param"]["num_trees"] = "0"
    with pytest.raises(InvalidArgumentError, match=r"xgboost\.json has no trees"):
        load_forest(tmp_path, "xgboost.json", lambda path: path.write_text(json.dumps(content)))


@pytest.mark.parametrize("release", [3, 99])
def test_a_checkpoint_of_another_release_is_refused_with_both_releases(tmp_path: Path, release: int) -> None:
    content = bytearray(_checkpoint(boosted("binary", "binary:logistic")))
    content[:4] = struct.pack("<i", release)  # the first number of treelite's version begins a checkpoint
    with pytest.raises(
        InvalidArgumentError,
        match=rf"checkpoint\.tl is not a treelite checkpoint.* running Treelite version {treelite.__version__} "
        rf".* generated from Treelite version {release}\.",
    ):
        load_forest(tmp_path, "checkpoint.tl", lambda path: path.write_bytes(content))


def test_a_checkpoint_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    forest = treelite.frontend.from_xgboost(boosted("binary", "binary:logistic"))
    forest.get_header_accessor().set_field("class_id", np.full(forest.num_tree, 999, np.int32))
    with pytest.raises(InvalidArgumentError, match=r"the forest in .*/checkpoint\.tl is damaged: index 999"):
        load_forest(tmp_path, "checkpoint.tl", forest.serialize)


@pytest.mark.parametrize(
    ("field", "number", "text"),
    [
        ("cleft", 0, "the nodes of a tree do not form a tree"),
        ("cright", 5000, "the nodes of a tree do not form a tree"),
        ("split_index", 30, "a node tests a feature that is none of the 30"),
    ],
)
def test_a_checkpoint_whose_walk_would_not_end_or_leave_the_row_is_refused(
    tmp_path: Path, field: str, number: int, text: str
) -> None:
    forest = treelite.frontend.from_xgboost(boosted("binary", "binary:logistic"))
    tree = forest.get_tree_accessor(3)
    values = tree.get_field(field).copy()
    values[0] = number
    tree.set_field(field, values)
    with pytest.raises(InvalidArgumentError, match=text):
        load_forest(tmp_path, "checkpoint.tl", forest.serialize)


def _checkpoint(booster: object) -> bytes:
    from treelite.frontend import from_xgboost

    content: bytes = from_xgboost(booster).serialize_bytes()
    return content


@pytest.mark.filterwarnings("ignore:.*Encountered unknown key")  # of treelite, which names it
def test_unknown_fields_are_refused_unless_they_are_allowed(tmp_path: Path) -> None:
    content = json.loads(boosted("binary", "binary:logistic").save_raw("json"))
    content["learner"]["gradient_booster"]["model"]["unheard_of"] = 1

    def save(path: Path) -> None:
        path.write_text(json.dumps(content))

    with pytest.raises(InvalidArgumentError, match="unheard_of"):
        load_forest(tmp_path / "a", "xgboost.json", save)
    lenient = load_forest(
        tmp_path / "b", "xgboost.json", save, parameter("xgboost_allow_unknown_field", "true")
    )
    assert predict(lenient, data("binary")[0][:1]).shape == (1, 1)


@each_foreign_file
@pytest.mark.parametrize("model_type", SUFFIXES)
def test_an_unreadable_file_is_told_by_what_it_looks_like(
    tmp_path: Path, model_type: str, content: bytes, text: str
) -> None:
    filename = f"mine.{SUFFIXES[model_type]}"
    config = f'default_model_filename: "{filename}"\n' + parameter("model_type", model_type)
    with pytest.raises(HalimedeError, match=rf"is not a.*, or is damaged: .* \({text}[^)]*\)$"):
        load_forest(tmp_path, filename, lambda path: path.write_bytes(content), config)
