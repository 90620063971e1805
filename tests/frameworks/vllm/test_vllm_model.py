"""How models of the backend `vllm` are loaded: arguments of the engine, its GPUs, and how it is told to sample."""

import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from halimede.backends.base import BackendOptions, InstanceSpec, ModelSource
from halimede.backends.language.sampling import Sampling
from halimede.backends.language.structure import Structure, StructureKind
from halimede.backends.vllm.backend import VllmModel
from halimede.backends.vllm.devices import choose_devices
from halimede.backends.vllm.sampling import sampling_params
from halimede.config.parse import parse_text
from halimede.config.signature import Signature
from halimede.core.errors import HalimedeError, InvalidArgumentError
from tests.backends.language.asked import Asked, batch_of


def source_of(directory: Path, arguments: str | None, config: str = "") -> ModelSource:
    (directory / "m" / "1").mkdir(parents=True)
    if arguments is not None:
        (directory / "m" / "1" / "model.json").write_text(arguments)
    parsed = parse_text(f'name: "m" backend: "vllm" {config}', "test")
    return ModelSource("m", 1, directory / "m", parsed)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (None, r"there is no file '.*model.json', which holds the arguments of vLLM's engine"),
        ("{}", r"'.*model.json' does not name the model"),
        ("[]", r"'.*model.json' must be a JSON object"),
        ("{", r"cannot read '.*model.json'"),
        (
            '{"model": "echo", "max_num_seq": 3}',
            r"'.*model.json': the engine of vLLM .* has no argument 'max_num_seq'; did you mean 'max_num_seqs'\?",
        ),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, arguments: str | None, told: str) -> None:
    with pytest.raises(HalimedeError, match=told):
        VllmModel(source_of(tmp_path, arguments), BackendOptions())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            {"model": "missing"},
            "vLLM cannot load the model 'missing': OSError: missing is not a local folder",
        ),
        ({"model": "echo", "gpu_memory_utilization": 2}, r"vLLM cannot load .*: ValueError: GPU memory"),
    ],
)
def test_a_model_that_vllm_cannot_load_is_named(tmp_path: Path, arguments: dict[str, Any], told: str) -> None:
    model = VllmModel(source_of(tmp_path, json.dumps(arguments)), BackendOptions())
    with pytest.raises(InvalidArgumentError, match=told):
        model.create_instance(InstanceSpec("m_0"))


def test_a_directory_of_transformers_needs_no_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = written(tmp_path, None, monkeypatch)
    assert seen.model == str(tmp_path / "m" / "1")
    assert seen.params.temperature == 1


def test_sampling_starts_from_what_the_model_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = written(tmp_path, '{"model": "warm", "max_model_len": 50}', monkeypatch)
    assert seen.params.temperature == 0.5
    assert seen.params.max_tokens == 50 - len(seen.prompt["prompt_token_ids"])


class Seen:
    """What the engine was asked for."""

    model: str
    prompt: Any
    params: Any


def written(directory: Path, arguments: str | None, patch: pytest.MonkeyPatch) -> Seen:
    """Have a model write something."""
    from vllm.v1.engine.async_llm import AsyncLLM

    seen, write = Seen(), AsyncLLM.generate

    async def generate(self: Any, prompt: Any, params: Any, number: str) -> AsyncGenerator[Any, None]:
        seen.model, seen.prompt, seen.params = self.model_config.model, prompt, params
        async for output in write(self, prompt, params, number):
            yield output

    patch.setattr(AsyncLLM, "generate", generate)
    source = source_of(directory, arguments)
    if arguments is None:
        (source.version_directory / "config.json").write_text("{}")
    model = VllmModel(source, BackendOptions())
    model.complete_config()
    model.check_config()
    instance = model.create_instance(InstanceSpec("m_0"))
    try:
        asked = Asked("words")
        instance.execute(batch_of(Signature.from_config(source.config), asked))
        assert asked.wait().text == "words"
    finally:
        instance.close()
    return seen


def test_all_of_the_sampling_reaches_vllm() -> None:
    params = sampling_params(
        Sampling(
            temperature=0.3, top_p=0.4, top_k=5, min_p=0.1, repetition_penalty=1.2, frequency_penalty=0.5,
            presence_penalty=0.6, logit_bias={3: 1.5}, seed=7, min_tokens=90, stop_token_ids=(8, 9), ignore_eos=True,
            allowed_token_ids=(8,), bad_words=("x",),
        ),
        room=40,
    )  # fmt: skip
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.3, 0.4, 5, 0.1)
    assert (params.repetition_penalty, params.frequency_penalty, params.presence_penalty) == (1.2, 0.5, 0.6)
    assert (params.logit_bias, params.seed, params.max_tokens, params.min_tokens) == ({3: 1.5}, 7, 40, 40)
    assert (params.stop_token_ids, params.ignore_eos, params.n) == ([8, 9], True, 1)
    assert (params.allowed_token_ids, params.bad_words) == ([8], ["x"])
    assert sampling_params(Sampling(), room=1).top_k == -1


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        (StructureKind.JSON_SCHEMA, "{}", "{}"),
        (StructureKind.REGEX, "a+", "a+"),
        (StructureKind.GRAMMAR, "root ::= a", "root ::= a"),
        (StructureKind.CHOICE, '["a", "b"]', ["a", "b"]),
    ],
)
def test_the_form_of_a_text_reaches_vllm(kind: StructureKind, text: str, told: Any) -> None:
    params = sampling_params(Sampling(structure=Structure(kind, text, "f"), ignore_eos=True), room=1)
    assert getattr(params.structured_outputs, kind.value) == told
    assert not params.ignore_eos
    with pytest.raises(InvalidArgumentError, match="'f' cannot be used: Invalid JSON schema"):
        sampling_params(Sampling(structure=Structure(StructureKind.JSON_SCHEMA, "no schema", "f")), room=1)


@pytest.mark.parametrize(
    ("kind", "device", "config", "before", "after"),
    [
        ("KIND_GPU", 1, "", None, "1"),
        ("KIND_GPU", 1, "", "3,GPU-abc", "GPU-abc"),
        ("KIND_MODEL", 0, "", None, None),
        ("KIND_MODEL", 0, "0, 2", None, "0,2"),
        ("KIND_CPU", 0, "0", "3", "3"),
    ],
)
def test_an_instance_sees_its_gpus_only(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    device: int,
    config: str,
    before: str | None,
    after: str | None,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "to be restored")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    if before is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    choose_devices(config_of(config), InstanceSpec("m_0", 0, kind, device), {})
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == after


@pytest.mark.parametrize(
    ("kind", "config", "told"),
    [
        ("KIND_GPU", "", "vLLM is to use 2 GPUs, but an instance of KIND_GPU has one"),
        ("KIND_MODEL", "1", "names 1 GPUs, but vLLM is to use 2"),
        ("KIND_MODEL", "1,1", "names a GPU twice"),
        ("KIND_MODEL", "a,1", "must be an integer of at least 0, got 'a'"),
        ("KIND_MODEL", "-1,1", "must be an integer of at least 0, got '-1'"),
    ],
)
def test_gpus_that_cannot_be_are_refused(kind: str, config: str, told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        choose_devices(config_of(config), InstanceSpec("m_0", 0, kind), {"tensor_parallel_size": 2})


def config_of(devices: str) -> Any:
    text = f'parameters {{ key: "GPU_DEVICE_IDS" value {{ string_value: "{devices}" }} }}' if devices else ""
    return parse_text(f'name: "m" backend: "vllm" {text}', "test")
