import logging
from pathlib import Path

import pytest

from halimede.config.model_config_pb2 import ModelInstanceGroup
from halimede.config.override import ConfigOverride
from halimede.core.errors import HalimedeError, InvalidArgumentError
from halimede.repository.resolve import resolve

IDENTITY = """
backend: "identity"
max_batch_size: 4
input [{ name: "IN", data_type: TYPE_FP32, dims: [4] }]
output [{ name: "OUT", data_type: TYPE_FP32, dims: [4] }]
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "m"
    (directory / "1").mkdir(parents=True)
    (directory / "2").mkdir()
    (directory / "config.pbtxt").write_text(IDENTITY)
    return directory


def test_config_is_named_and_normalised_and_the_latest_version_selected(model: Path) -> None:
    resolved = resolve("m", model)
    assert resolved.directory == model
    assert resolved.versions == (2,)
    assert resolved.config.name == "m"
    assert resolved.config.instance_group[0].kind == ModelInstanceGroup.KIND_CPU
    assert resolved.config.version_policy.latest.num_versions == 1


def test_named_config_is_used_where_it_exists(model: Path) -> None:
    (model / "configs").mkdir()
    (model / "configs" / "special.pbtxt").write_text(IDENTITY + "version_policy { all {} }")
    assert resolve("m", model, config_name="special").versions == (1, 2)
    assert resolve("m", model, config_name="other").versions == (2,)


def test_override_is_used_instead_of_the_file(model: Path) -> None:
    (model / "config.pbtxt").write_text("this is nonsense")
    text = '{"backend": "identity", "version_policy": {"specific": {"versions": [1]}}}'
    assert resolve("m", model, config_override=ConfigOverride(text)).versions == (1,)
    with pytest.raises(InvalidArgumentError, match="Invalid config override: "):
        resolve("m", model, config_override=ConfigOverride('{"no_such_field": 1}'))


def test_name_must_equal_the_directory(model: Path) -> None:
    (model / "config.pbtxt").write_text(IDENTITY + 'name: "other"')
    with pytest.raises(InvalidArgumentError) as caught:
        resolve("m", model)
    assert caught.value.message == (
        "unexpected directory name 'm' for model 'other', directory name must equal model name"
    )


@pytest.mark.parametrize(
    "policy",
    ["specific { versions: [3] }", "specific { }", "all {}", "latest { num_versions: 0 }", "latest { }"],
)
def test_policy_may_select_no_version(model: Path, policy: str) -> None:
    (model / "config.pbtxt").write_text(IDENTITY + f"version_policy {{ {policy} }}")
    if policy == "all {}":
        (model / "1").rmdir()
        (model / "2").rename(model / "02")
    assert resolve("m", model).versions == ()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("max_batch_size: -1", "'max_batch_size' must be non-negative value for m"),
        (
            "response_cache { enable: true } sequence_batching { }",
            "Response Cache does not currently support",
        ),
        (
            'platform: "ensemble"',
            "Ensemble model 'm' must have platform type 'ensemble' and empty backend type",
        ),
        ("model_metrics { metric_control { } }", "metric control must specify 'metric_identifier'"),
    ],
)
def test_settings_that_no_model_completes_must_be_valid_at_once(
    model: Path, setting: str, message: str
) -> None:
    (model / "config.pbtxt").write_text(f'backend: "identity" {setting}')
    with pytest.raises(InvalidArgumentError, match=message):
        resolve("m", model)


@pytest.mark.parametrize(
    "setting",
    [
        "dynamic_batching { preferred_batch_size: [ 2 ] }",
        "sequence_batching { oldest { preferred_batch_size: [ 2 ] } }",
        'dynamic_batching { } parameters { key: "dynamic_batching.max_tokens" value { string_value: "9" } }',
        'parameters { key: "dynamic_batching.max_tokens" value { string_value: "9" } }',
    ],
)
def test_what_depends_on_batching_may_be_wrong_only_while_that_is_completed(
    model: Path, setting: str
) -> None:
    (model / "config.pbtxt").write_text(IDENTITY.replace("max_batch_size: 4\n", "") + setting)
    assert resolve("m", model).versions == (2,)
    with pytest.raises(InvalidArgumentError, match=r"max.batch.size|without dynamic_batching"):
        resolve("m", model, auto_complete=False)


def test_config_file_may_be_missing_only_while_it_is_completed(model: Path) -> None:
    (model / "config.pbtxt").unlink()
    (model / "1" / "model.onnx").write_bytes(b"")
    assert resolve("m", model).config.backend == "onnxruntime"
    with pytest.raises(HalimedeError) as caught:
        resolve("m", model, auto_complete=False)
    assert caught.value.message == (
        f"failed to open text file for read {model}/config.pbtxt: No such file or directory"
    )


def test_config_must_be_valid_at_once_when_it_is_not_completed(model: Path) -> None:
    (model / "config.pbtxt").write_text('backend: "identity" input [{ name: "IN", dims: [4] }]')
    assert resolve("m", model).versions == (2,)
    with pytest.raises(InvalidArgumentError, match="model input 'IN' must specify 'data_type'"):
        resolve("m", model, auto_complete=False)


@pytest.mark.parametrize("auto_complete", [True, False])
def test_instances_are_looked_at_only_when_the_model_is_loaded(model: Path, auto_complete: bool) -> None:
    (model / "config.pbtxt").write_text(IDENTITY + "instance_group { kind: KIND_CPU gpus: 0 }")
    assert resolve("m", model, auto_complete=auto_complete).versions == (2,)


def test_bad_text_is_an_error(model: Path) -> None:
    (model / "config.pbtxt").write_text("backend: {")
    with pytest.raises(InvalidArgumentError, match="failed to read text proto from "):
        resolve("m", model)


def test_models_for_gpus_run_on_cpus_if_they_may_and_there_are_no_gpus(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    groups = 'instance_group [{ kind: KIND_GPU gpus: [0] count: 3 }, { name: "more" kind: KIND_GPU }]'
    (model / "config.pbtxt").write_text(f"{IDENTITY} {groups}")
    kept = resolve("m", model).config.instance_group
    assert [group.kind for group in kept] == [ModelInstanceGroup.KIND_GPU] * 2
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "halimede"):
        moved = resolve("m", model, cpu_fallback=True).config.instance_group
    assert [(group.kind, list(group.gpus), group.count) for group in moved] == [
        (ModelInstanceGroup.KIND_CPU, [], 3),
        (ModelInstanceGroup.KIND_CPU, [], 1),
    ]
    assert [record.getMessage() for record in caplog.records] == [
        f"instance group {name} of model m has kind KIND_GPU and runs on CPUs: the backend identity runs on CPUs only"
        for name in ("m_0", "more")
    ]


def test_models_for_gpus_stay_on_the_gpus_that_there_are(model: Path) -> None:
    (model / "config.pbtxt").write_text(
        IDENTITY.replace("identity", "python") + "instance_group { kind: KIND_GPU }"
    )
    [group] = resolve("m", model, gpus=(0, 1), cpu_fallback=True).config.instance_group
    assert (group.kind, list(group.gpus)) == (ModelInstanceGroup.KIND_GPU, [0, 1])
