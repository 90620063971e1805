"""The language model that is measured, with random weights, and the parts of its directory."""

import shutil
from pathlib import Path
from typing import Any, Final

from benchmarks.models import REPOSITORIES

NAME: Final = "writer"
CONTEXT: Final = 512
LIMITS: Final = {"max_num_seqs": 16, "max_num_batched_tokens": 256, "cache_size": 1}
"""Of the scheduler, with and without a server."""

_SIZES: Final = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.02,
}
"""Those of SmolLM-135M, but for its vocabulary: 106 million weights."""


def repository() -> Path:
    """`writer`: a Llama for OpenVINO GenAI; it is made once."""
    directory = REPOSITORIES / "language"
    model = directory / NAME
    if not (model / "config.pbtxt").is_file():
        from tests.frameworks.openvino_genai import exported
        from tests.frameworks.transformers import tiny_models

        def write_characters(writer: Any) -> None:
            """Let it choose only tokens of whole characters: each is an event then, as of a model that has learned."""
            for token in range(len(tiny_models.tokenizer())):
                if not tiny_models.tokenizer().decode([token]).isascii():
                    writer.lm_head.weight.data[token] = 0

        shutil.rmtree(directory, ignore_errors=True)
        (model / "1").mkdir(parents=True)
        exported.export(model / "1", write_characters, **_SIZES)
        parameters = "".join(
            f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
            for key, value in LIMITS.items()
        )
        (model / "config.pbtxt").write_text(f'backend: "openvino_genai"\n{parameters}')
    return directory


def version_directory() -> Path:
    """Where the model's files are."""
    return repository() / NAME / "1"
