"""The models that serve a text model: a tokenizer, an encoder, and the ensemble of both."""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from halimede.core.cpus import cpu_budget
from halimede.files.targets import TargetError
from halimede.files.text.checkpoint import TextModel, is_bert, read_text_model
from halimede.files.text.tokenizer import MODEL
from halimede.files.text.torch_encoder import write_module

MAX_ROWS: Final = 64
MAX_TOKENS: Final = 512
MAX_PADDING: Final = "0.1"

_ONNX: Final = ("model.onnx", "onnx/model.onnx")
_OPENVINO: Final = ("openvino_model.xml", "openvino/openvino_model.xml")
_LABELS: Final = "labels.txt"

_ENSEMBLE: Final = """\
# Text in, {answer}. Written by `halimede init`; the steps are the models {tokenizer} and {encoder}.
platform: "ensemble"
max_batch_size: {rows}
input {{ name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] }}
output [
  {{ name: "{output}" data_type: TYPE_FP32 dims: [ {width} ] }},
  {{ name: "num_input_tokens" data_type: TYPE_INT32 dims: [ 1 ] }}
]
ensemble_scheduling {{
  step [
    {{
      model_name: "{tokenizer}"
      model_version: -1
      input_map {{ key: "TEXT" value: "TEXT" }}
{given}
      output_map {{ key: "num_input_tokens" value: "num_input_tokens" }}
    }},
    {{
      model_name: "{encoder}"
      model_version: -1
{taken}
      output_map {{ key: "{output}" value: "{output}" }}
    }}
  ]
}}
"""
_EMBEDDINGS: Final = """
# For OpenAI's API (--allow-openai=true).
parameters { key: "openai.task" value { string_value: "embeddings" } }
"""
_TOKENIZER: Final = """\
# Texts to token ids. All texts that wait are tokenized in one call, in the server's process.
backend: "python"
max_batch_size: {rows}
dynamic_batching {{ }}
input {{ name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] }}
output [
{outputs},
  {{ name: "num_input_tokens" data_type: TYPE_INT32 dims: [ 1 ] }}
]
parameters {{ key: "isolation" value {{ string_value: "none" }} }}

# Longer texts are cut.
parameters {{ key: "max_tokens" value {{ string_value: "{max_tokens}" }} }}
parameters {{ key: "pad_id" value {{ string_value: "{pad_id}" }} }}
"""
_ENCODER: Final = """\
# Token ids to {answer}.
backend: "{backend}"
{file}max_batch_size: {rows}
input [
{inputs}
]
output {{ name: "{output}" data_type: TYPE_FP32 dims: [ {width} ]{labels} }}

# Texts of similar length share a batch, up to so many tokens; padding may be a tenth of it.
# A GPU is faster with more tokens and more padding.
dynamic_batching {{ }}
parameters {{ key: "dynamic_batching.max_tokens" value {{ string_value: "{max_tokens}" }} }}
parameters {{ key: "dynamic_batching.max_padding" value {{ string_value: "{max_padding}" }} }}
parameters {{ key: "dynamic_batching.pad_with" value {{ string_value: "input_ids={pad_id}" }} }}
"""


_ONE_THREAD_EACH: Final = """\
# A batch on each processor makes more texts a second than one on all of them. Without these two lines, a single
# text is faster; on a GPU, leave them out.
instance_group [ {{ count: {count} }} ]
parameters {{ key: "intra_op_thread_count" value {{ string_value: "1" }} }}
"""


def write_text_models(repository: Path, name: str, directory: Path) -> str:
    """Write the models of the text model in `directory` into a repository; the result says how it was understood.

    Raises:
        TargetError: it cannot be served.
    """
    model = read_text_model(directory)
    tokenizer, encoder = step_names(name)
    output = "PROBABILITIES" if model.labels else "EMBEDDING"
    version = repository / encoder / "1"
    version.mkdir(parents=True)
    backend, file, inputs = _write_encoder(model, version, output)
    width = len(model.labels) or int(model.config["hidden_size"]) * len(model.pooling)
    answer = "class probabilities out" if model.labels else "an embedding out"
    ids = "\n".join(f'      output_map {{ key: "{each}" value: "{each}" }}' for each in inputs)
    taken = ids.replace("output_map", "input_map")
    text = _ENSEMBLE.format(
        answer=answer,
        tokenizer=tokenizer,
        encoder=encoder,
        rows=MAX_ROWS,
        output=output,
        width=width,
        given=ids,
        taken=taken,
    )
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(text + ("" if model.labels else _EMBEDDINGS))
    (repository / encoder / "config.pbtxt").write_text(
        _ENCODER.format(
            answer=answer.removesuffix(" out"),
            backend=backend,
            file=file,
            rows=MAX_ROWS,
            inputs=_tensors(inputs),
            output=output,
            width=width,
            labels=f' label_filename: "{_LABELS}"' if model.labels else "",
            max_tokens=max(MAX_TOKENS, model.max_tokens),
            max_padding=MAX_PADDING,
            pad_id=model.pad_id,
        )
    )
    if model.labels:
        (repository / encoder / _LABELS).write_text("".join(f"{label}\n" for label in model.labels))
    _write_tokenizer(model, repository / tokenizer, inputs)
    return model.kind


def step_names(name: str) -> tuple[str, str]:
    """The names of tokenizer and encoder of an ensemble."""
    return f"{name}_tokenizer", f"{name}_encoder"


def _write_encoder(model: TextModel, version: Path, output: str) -> tuple[str, str, Sequence[str]]:
    """Write what the directory has; the result is the backend, further lines of the configuration, and the inputs."""
    for each in _ONNX:
        if (model.directory / each).is_file():
            _need("onnx", model)
            from halimede.files.text.onnx_encoder import build_from_onnx

            inputs = build_from_onnx(model, model.directory / each, version / "model.onnx", output)
            return "onnxruntime", _one_thread_each(), inputs
    for each in _OPENVINO:
        if (model.directory / each).is_file():
            _need("onnx", model)
            _need("openvino", model)
            from halimede.files.text.openvino_encoder import build_from_openvino

            return (
                "openvino",
                "",
                build_from_openvino(model, model.directory / each, version / "model.xml", output),
            )
    if is_bert(model.config) and (model.directory / "model.safetensors").is_file():
        _need("onnx", model)
        _need("safetensors", model)
        from halimede.files.text.onnx_encoder import build_from_weights

        return "onnxruntime", _one_thread_each(), build_from_weights(model, version / "model.onnx", output)
    write_module(model, version)
    return "pytorch", 'runtime: "model.py"\n', ("input_ids", "attention_mask")


def _one_thread_each() -> str:
    """Lines by which as many batches run at once as there are processors; instances share the weights."""
    return _ONE_THREAD_EACH.format(count=cpu_budget())


def _write_tokenizer(model: TextModel, directory: Path, inputs: Sequence[str]) -> None:
    version = directory / "1"
    version.mkdir(parents=True)
    text = _TOKENIZER.format(
        rows=MAX_ROWS, outputs=_tensors(inputs), max_tokens=model.max_tokens, pad_id=model.pad_id
    )
    if model.prefix:
        quoted = json.dumps(model.prefix, ensure_ascii=False)
        text += "\n# What is put in front of each text.\n"
        text += f'parameters {{ key: "prefix" value {{ string_value: {quoted} }} }}\n'
    if model.lower_case:
        text += 'parameters { key: "lower_case" value { string_value: "true" } }\n'
    (directory / "config.pbtxt").write_text(text)
    (version / "model.py").write_text(MODEL)
    (version / "tokenizer.json").symlink_to((model.directory / "tokenizer.json").absolute())


def _tensors(names: Sequence[str]) -> str:
    return ",\n".join(f'  {{ name: "{name}" data_type: TYPE_INT64 dims: [ -1 ] }}' for name in names)


def _need(package: str, model: TextModel) -> None:
    if find_spec(package) is None:
        raise TargetError(
            f"'{model.directory}' is a {model.kind}, which needs the package '{package}'; install it with: "
            "pip install 'halimede[text]'"
        )
