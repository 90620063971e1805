"""Pretrained models without a configuration: what of the environment and of serving.properties becomes theirs."""

from pathlib import Path
from typing import Any

import click
import pytest

from halimede.cli.sagemaker.command import Plan
from halimede.cli.sagemaker.language_options import LANGUAGE_OPTIONS
from halimede.config.parse import read_config
from tests.cli.sagemaker.test_command import planned


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """What stands for /opt/ml, with a pretrained model."""
    model = tmp_path / "ml" / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    return tmp_path / "ml"


def configured(plan: Plan) -> dict[str, Any]:
    """Backend and parameters of the planned model."""
    [repository] = [flag.partition("=")[2] for flag in plan.flags if flag.startswith("--model-repository=")]
    assert "--load-model=model" in plan.flags
    config = read_config(Path(repository) / "model" / "config.pbtxt")
    assert (Path(repository) / "model" / "1" / "config.json").is_file()
    parameters = {key: value.string_value for key, value in config.parameters.items()}
    return {"backend": config.backend, **parameters}


def refusal(base: Path, **variables: str) -> str:
    with pytest.raises(click.UsageError) as caught:
        planned(base, variables)
    return caught.value.format_message()


def test_a_plain_directory_needs_no_configuration(base: Path) -> None:
    plan = planned(base, {})
    assert configured(plan) == {"backend": "transformers"}
    assert plan.remarks == []
    assert plan.environment["SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"] == "model"
    assert f"one model, pretrained, of {base / 'model'}" in plan.what


def test_exported_models_run_on_openvino(base: Path) -> None:
    (base / "model" / "openvino_model.xml").touch()
    plan = planned(base, {"OPTION_ENABLE_PREFIX_CACHING": "true", "OPTION_DTYPE": "bf16"})
    assert configured(plan) == {
        "backend": "openvino_genai",
        "enable_prefix_caching": "true",
        "INFERENCE_PRECISION_HINT": "bf16",
    }
    assert plan.remarks == []


def test_a_text_model_that_cannot_be_served_is_refused(base: Path) -> None:
    (base / "model" / "modules.json").write_text('[{"type": "models.Dense"}]')
    assert "module 0 is 'models.Dense'; what can be served is one Transformer" in refusal(base)


def test_variables_become_parameters(base: Path) -> None:
    plan = planned(
        base,
        {
            "HF_MODEL_ID": "/opt/ml/model",
            "OPTION_MAX_MODEL_LEN": "512",
            "OPTION_MAX_ROLLING_BATCH_SIZE": "8",
            "OPTION_MAX_ROLLING_BATCH_PREFILL_TOKENS": "64",
            "OPTION_DTYPE": "fp32",
            "OPTION_ROLLING_BATCH": "vllm",
            "OPTION_TENSOR_PARALLEL_DEGREE": "max",
            "OPTION_TRUST_REMOTE_CODE": "false",
            "OPTION_TGI_COMPAT": "true",
        },
    )
    assert configured(plan) == {
        "backend": "transformers",
        "max_model_len": "512",
        "max_num_seqs": "8",
        "max_num_batched_tokens": "64",
        "dtype": "float32",
    }
    assert plan.environment["OPTION_TGI_COMPAT"] == "true"
    assert plan.remarks == []


def test_variables_of_tgi_count(base: Path) -> None:
    plan = planned(base, {"MAX_TOTAL_TOKENS": "99", "MAX_BATCH_PREFILL_TOKENS": "7", "SM_NUM_GPUS": "1"})
    assert configured(plan) == {
        "backend": "transformers",
        "max_model_len": "99",
        "max_num_batched_tokens": "7",
    }


def test_properties_of_the_model_take_precedence(base: Path) -> None:
    (base / "model" / "serving.properties").write_text(
        "# made by hand\nengine=Python\noption.max_model_len = 64\noption.dtype: fp16\noption.model_id=.\n"
        "option.tgi_compat=true\n! more\noption.gpu_memory_utilization=0.9\n"
    )
    plan = planned(base, {"OPTION_MAX_MODEL_LEN": "512", "OPTION_MAX_ROLLING_BATCH_SIZE": "8"})
    assert configured(plan) == {
        "backend": "transformers",
        "max_model_len": "64",
        "max_num_seqs": "8",
        "dtype": "float16",
    }
    assert plan.environment["OPTION_TGI_COMPAT"] == "true"
    assert plan.remarks == [
        "'option.gpu_memory_utilization' in serving.properties is not known here and has no effect"
    ]


def test_recipes_of_lmi_s_asynchronous_mode(base: Path) -> None:
    (base / "model" / "serving.properties").write_text(
        "option.entryPoint=djl_python.lmi_vllm.vllm_async_service\noption.max_num_seqs=4\n"
    )
    plan = planned(
        base,
        {
            "OPTION_ASYNC_MODE": "true",
            "OPTION_ROLLING_BATCH": "disable",
            "OPTION_MAX_NUM_BATCHED_TOKENS": "64",
            "TENSOR_PARALLEL_DEGREE": "max",
        },
    )
    assert configured(plan) == {
        "backend": "transformers",
        "max_num_seqs": "4",
        "max_num_batched_tokens": "64",
    }
    assert plan.remarks == [
        "OPTION_ASYNC_MODE has no effect here. Requests are always served asynchronously.",
        "'option.entrypoint' in serving.properties has no effect here. The backend is chosen by the model's files.",
    ]


def test_a_directory_below_is_named(base: Path) -> None:
    (base / "model" / "config.json").rename(base / "config.json")
    (base / "model" / "llama").mkdir()
    (base / "config.json").rename(base / "model" / "llama" / "config.json")
    for name in ("/opt/ml/model/llama", "llama", str(base / "model" / "llama")):
        plan = planned(base, {"OPTION_MODEL_ID": name})
        assert configured(plan)["backend"] == "transformers"
        assert plan.what.startswith(f"one model, pretrained, of {base / 'model' / 'llama'}")
        for path in sorted((base / "scratch").rglob("*"), reverse=True):
            path.unlink() if path.is_symlink() or path.is_file() else path.rmdir()
        (base / "scratch").rmdir()


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        (
            {"HF_MODEL_ID": "meta-llama/Llama-3.2-1B"},
            "HF_MODEL_ID is 'meta-llama/Llama-3.2-1B': there is no such directory. Nothing is downloaded",
        ),
        ({"OPTION_MODEL_ID": "s3://models/llama/"}, "OPTION_MODEL_ID is 's3://models/llama/': there is no such"),
        ({"OPTION_TENSOR_PARALLEL_DEGREE": "4"}, "OPTION_TENSOR_PARALLEL_DEGREE: '4' is not supported here: a model"),
        ({"SM_NUM_GPUS": "8"}, "SM_NUM_GPUS: '8' is not supported here"),
        ({"OPTION_QUANTIZE": "awq"}, "OPTION_QUANTIZE: 'awq' is not supported here: weights are served as they lie"),
        ({"HF_MODEL_TRUST_REMOTE_CODE": "true"}, "HF_MODEL_TRUST_REMOTE_CODE: 'true' is not supported"),
        ({"OPTION_ROLLING_BATCH": "deepspeed"}, "OPTION_ROLLING_BATCH: 'deepspeed' is not one of 'auto', 'vllm'"),
        ({"OPTION_DTYPE": "int8"}, "OPTION_DTYPE: 'int8' is not one of 'auto', 'fp32'"),
        ({"OPTION_MAX_MODEL_LEN": "0"}, "OPTION_MAX_MODEL_LEN: 0 is out of range; it must be at least 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_by_name(base: Path, variables: dict[str, str], text: str) -> None:
    assert refusal(base, **variables).startswith(text)


def test_a_model_is_not_divided_among_gpus(base: Path) -> None:
    with pytest.raises(click.UsageError, match="'max' is 4 GPUs here, but a model is not divided"):
        planned(base, {"OPTION_TENSOR_PARALLEL_DEGREE": "max"}, 4)


def test_options_without_effect_are_warned_of(base: Path) -> None:
    plan = planned(
        base, {"OPTION_ENABLE_PREFIX_CACHING": "on", "SERVING_FAIL_FAST": "true", "OPTION_MAX_LORAS": "4"}
    )
    assert configured(plan) == {"backend": "transformers"}
    assert plan.remarks == [
        "SERVING_FAIL_FAST has no effect here. The start always fails if the model cannot be loaded.",
        "OPTION_MAX_LORAS is not known and has no effect; the nearest is OPTION_MAX_NUM_SEQS",
        "OPTION_ENABLE_PREFIX_CACHING has no effect here. Only models of OpenVINO have a cache of prefixes.",
    ]


def test_models_with_a_configuration_say_it_themselves(base: Path) -> None:
    model = base / "model" / "echo"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text('backend: "identity"')
    (base / "model" / "config.json").unlink()
    plan = planned(base, {"OPTION_TENSOR_PARALLEL_DEGREE": "4", "OPTION_TGI_COMPAT": "true"})
    assert "--load-model=echo" in plan.flags
    assert "OPTION_TENSOR_PARALLEL_DEGREE has no effect here. The model has a configuration." in plan.remarks
    (base / "other").mkdir()
    plan = planned(base / "other", {"SAGEMAKER_MULTI_MODEL": "true", "OPTION_DTYPE": "fp16"})
    assert (
        "OPTION_DTYPE has no effect here. Models of a multi-model endpoint have configurations."
        in plan.remarks
    )


def test_no_two_options_share_a_variable() -> None:
    names = [name for each in LANGUAGE_OPTIONS for name in (each.variable, *each.others)]
    assert len(names) == len(set(names))
