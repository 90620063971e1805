"""Reading configurations: every error says where and what would be right, and nothing else is ever raised."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.config import parse
from halimede.config.model_config_pb2 import ModelConfig, ModelInstanceGroup
from halimede.config.parse import ConfigTextError, parse_json, parse_text, read_config
from halimede.core.errors import HalimedeError, InvalidArgumentError, NotFoundError

WORDS = [
    "name", "input", "dims", "data_type", "TYPE_FP32", "dynamic_batching", "parameters", "key", "value",
    "version_policy", "latest", "{", "}", "<", ">", "[", "]", ":", ",", ";", "#", "\n", '"', "'", "\\", "\\x",
    "\\777", "1", "-1", "0x", "1e999", "9" * 30, "9" * 5000, "nan", "inf", "true", "\0", "é", "\ud800", " ",
]  # fmt: skip


def test_text_form_gives_the_configuration() -> None:
    config = parse_text(
        'name: "m" # a comment\ninput { name: "x" data_type: TYPE_FP32 dims: [ -1, 2 ] }', "m"
    )
    assert config.name == "m"
    assert list(config.input[0].dims) == [-1, 2]


@pytest.mark.parametrize(
    ("text", "where", "what", "fix"),
    [
        (
            'name: "m"\ninput [ {\n  name: "x"\n  data_typ: TYPE_FP32\n} ]',
            (4, 3),
            "'data_typ' is not a field of ModelInput; did you mean 'data_type'?",
            "data_type: TYPE_FP32",
        ),
        (
            "input {\n  data_type: FP32 dims: 1\n}",
            (2, 14),
            "'FP32' is not a DataType; did you mean 'TYPE_FP32'?",
            "data_type: TYPE_FP32 dims: 1",
        ),
        (
            "input { data_type: 'TYPE_FP64' }",
            (1, 20),
            "'TYPE_FP64' is in quotes, but a DataType is a name without them",
            "input { data_type: TYPE_FP64 }",
        ),
        (
            'input { data_type: "float" }',
            (1, 20),
            '"float" is in quotes, but a DataType is a name without them',
            "input { data_type: TYPE_FP32 }",
        ),
        ("instance_group { kind: KIND_TPUX9 }", (1, 24), "'KIND_TPUX9' is not a Kind; did you mean", None),
        (
            "model_metrics { zzz: 1 }",
            (1, 17),
            "'zzz' is not a field of ModelMetrics, which are: metric_control",
            "",
        ),
        ('name: "a"\nname: "b"', (2, 7), "'name' is given twice; it may be given once", ""),
        (
            "dynamic_batching {}\nsequence_batching {}",
            (2, 1),
            "'sequence_batching' and 'dynamic_batching' exclude each other; only one may be given",
            "remove dynamic_batching",
        ),
        (
            "version_policy { all { } latest { } }",
            (1, 26),
            "'latest' and 'all' exclude each other; only one may be given",
            "remove latest",
        ),
        (
            "input {",
            (1, 7),
            "expected \"}\"; the message 'input' that begins in line 1 is not closed; its '}' is missing",
            "}",
        ),
        ('max_batch_size: "8"', (1, 17), 'couldn\'t parse integer: "8"', ""),
        ("max_batch_size: 3000000000", (1, 17), "value out of range: 3000000000", ""),
        ('name: "m', (1, 7), "string missing ending quote: '\"m'", ""),
    ],
)
def test_wrong_text_is_told_with_line_column_and_what_would_be_right(
    text: str, where: tuple[int, int], what: str, fix: str | None
) -> None:
    with pytest.raises(ConfigTextError) as caught:
        parse_text(text, "m/config.pbtxt")
    line, column = where
    start = f"failed to read text proto from m/config.pbtxt: line {line}, column {column}: {what}"
    assert caught.value.message.startswith(start)
    assert (caught.value.line, caught.value.column) == where
    assert fix is None or caught.value.fix == fix


def test_missing_file_is_told_with_the_systems_words(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    with pytest.raises(NotFoundError) as caught:
        read_config(path)
    assert caught.value.message == f"failed to open text file for read {path}: No such file or directory"


def test_directory_in_place_of_the_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"failed to open text file for read .*: Is a directory"):
        read_config(tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_bytes(b'\xef\xbb\xbfname: "m"')
    assert read_config(path).name == "m"


def test_file_that_is_not_utf8_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_bytes(b'name: "m"\nbackend: "\xff"')
    with pytest.raises(ConfigTextError, match=r"line 2, column 11: it is not UTF-8; save it as UTF-8"):
        read_config(path)


@pytest.mark.parametrize("content", [b"#", b"\xff"])
def test_huge_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(parse, "MAX_SIZE", 100)
    path = tmp_path / "config.pbtxt"
    path.write_bytes(content * 101)
    with pytest.raises(InvalidArgumentError, match="larger than 100 bytes"):
        read_config(path)
    with pytest.raises(InvalidArgumentError, match="Invalid config override: it is larger than 100 bytes"):
        parse_json(content * 101)


@pytest.mark.parametrize("text", ["input {" * 100_000, "[" * 100_000, "name: " + "9" * 100_000])
def test_deep_and_long_text_is_an_error_and_not_a_crash(text: str) -> None:
    with pytest.raises(ConfigTextError, match="failed to read text proto from m: line 1") as caught:
        parse_text(text, "m")
    assert len(caught.value.message) < 1000


def test_json_form_takes_enum_values_in_any_case_and_both_spellings_of_fields() -> None:
    config = parse_json(
        '{"maxBatchSize": "4", "instance_group": [{"kind": "kind_cpu", "count": 2}], "input": null}'
    )
    assert config.max_batch_size == 4
    assert config.instance_group[0].kind == ModelInstanceGroup.KIND_CPU


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"backendd": "x"}', "'backendd' is not a field of ModelConfig; did you mean 'backend'?"),
        ('{"zzz": "x"}', "'zzz' is not a field of ModelConfig"),
        (
            '{"input": [{"name": "x"}, {"data_type": "fp32"}]}',
            "input[1].data_type: 'fp32' is not a DataType; did you mean 'TYPE_FP32'?",
        ),
        ('{"dynamic_batching": {"priority_queue_policy": {"1": {"size": 1}}}}', None),
        ("[]", "the configuration must be an object"),
        ('{"input": 1}', "input must be an object"),
        ('{"max_batch_size": [8]}', None),
        ('{"input": [1]}', "input[0] must be an object"),
        ('{"parameters": []}', "parameters must be an object"),
        ('{"parameters": {"a": 1}}', 'parameters["a"] must be an object'),
        ('{"max_batch_size": 3000000000}', None),
        ('{"name": 1}', None),
        ('{"dynamic_batching": {}, "sequence_batching": {}}', None),
        ('{"name": "\\ud800"}', None),
        ("", None),
        ("{", None),
        ("[" * 1_000_000, None),
        ('{"input":' * 100_000, None),
    ],
)
def test_wrong_override_is_told(text: str, what: str | None) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_json(text)
    assert caught.value.message.startswith("Invalid config override: ")
    assert len(caught.value.message) < 500
    if what is not None:
        assert caught.value.message == f"Invalid config override: {what}"


def outcome(parser: Callable[..., ModelConfig], *arguments: object) -> ModelConfig | str:
    """The configuration, or the text of an error of ours."""
    try:
        return parser(*arguments)
    except HalimedeError as error:
        return error.message


texts = (
    st.text() | st.lists(st.sampled_from(WORDS)).map(" ".join) | st.lists(st.sampled_from(WORDS)).map("".join)
)


@given(texts)
@settings(max_examples=150, deadline=None)
def test_any_text_gives_a_configuration_or_one_of_our_errors(text: str) -> None:
    assert outcome(parse_text, text, "m") is not None
    assert outcome(parse_json, text) is not None


@given(st.binary() | texts.map(lambda text: text.encode("utf-8", "surrogatepass")))
@settings(max_examples=100, deadline=None)
def test_any_bytes_give_a_configuration_or_one_of_our_errors(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.pbtxt"
    path.write_bytes(content)
    assert outcome(read_config, path) is not None
    assert outcome(parse_json, content) is not None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(WORDS),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(sorted(ModelConfig.DESCRIPTOR.fields_by_name)) | st.text(max_size=3), below
        )
    ),
    max_leaves=10,
)


@given(
    st.dictionaries(st.sampled_from(sorted(ModelConfig.DESCRIPTOR.fields_by_name)), json_values, max_size=4)
)
@settings(max_examples=150, deadline=None)
def test_any_json_gives_a_configuration_or_one_of_our_errors(document: dict[str, object]) -> None:
    told = outcome(parse_json, json.dumps(document))
    assert not isinstance(told, str) or told.startswith("Invalid config override: ")


@pytest.mark.parametrize(
    ("escapes", "column"),
    [(r"\q", 37), (r"\n\8", 39), (r"a\xg", 38), (r"\u12", 37), (r"\\\ ", 39)],
)
def test_escapes_that_protobuf_does_not_have_are_refused(escapes: str, column: int) -> None:
    text = f'# "\\q"\nparameters {{ value {{ string_value: "{escapes}" }} }}'
    with pytest.raises(ConfigTextError, match="invalid escape sequence") as caught:
        parse_text(text, "m")
    assert (caught.value.line, caught.value.column) == (2, column)


def test_escapes_that_protobuf_has_are_read() -> None:
    text = r"""backend: '\x41\102\n\u00e4\\q\"' platform: "it's \\" """
    config = parse_text(text, "m")
    assert (config.backend, config.platform) == ('AB\nä\\q"', "it's \\")


@pytest.mark.parametrize(
    ("name", "datatype"),
    [
        ("TYPE_FLOAT", "TYPE_FP32"),
        ("TYPE_DOUBLE", "TYPE_FP64"),
        ("TYPE_HALF", "TYPE_FP16"),
        ("TYPE_BFLOAT16", "TYPE_BF16"),
        ("TYPE_LONG", "TYPE_INT64"),
        ("TYPE_INT", "TYPE_INT32"),
        ("TYPE_BYTES", "TYPE_STRING"),
        ("DT_FLOAT", "TYPE_FP32"),
        ("float32", "TYPE_FP32"),
        ("uint8_t", "TYPE_UINT8"),
    ],
)
def test_other_names_of_datatypes_become_the_same_datatype(name: str, datatype: str) -> None:
    with pytest.raises(ConfigTextError, match=f"did you mean '{datatype}'") as caught:
        parse_text(f"input {{ data_type: {name} }}", "here")
    assert caught.value.fix == f"input {{ data_type: {datatype} }}"
