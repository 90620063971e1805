"""Directories as `save_pretrained` of `transformers` writes them: what is in them, told by `config.json`."""

import json
from pathlib import Path
from typing import Final

CONFIG: Final = "config.json"
OPENVINO: Final = "openvino_model.xml"
_WRITERS: Final = ("ForCausalLM", "LMHeadModel")
"""How the names of architectures end that generate text."""
_PICKLED: Final = ("pytorch_model*.bin", "consolidated*.pth")


def architecture_in(directory: Path) -> str:
    """The class of the model in a directory; "" if none is named."""
    try:
        config = json.loads((directory / CONFIG).read_bytes())
    except (OSError, ValueError):
        return ""
    names = config.get("architectures") if isinstance(config, dict) else None
    return str(names[0]) if isinstance(names, list) and names else ""


def is_language_model(directory: Path) -> bool:
    """Whether the directory is that of a model that generates text, whatever its weights are."""
    return architecture_in(directory).endswith(_WRITERS)


def language_backend(directory: Path) -> str:
    """The backend that runs a language model: what OpenVINO exported is in a file of its own."""
    return "openvino_genai" if (directory / OPENVINO).is_file() else "transformers"


def lacking_weights(directory: Path) -> str:
    """What keeps the weights of a language model from being loaded, and what to do; "" if nothing does."""
    if (directory / OPENVINO).is_file() or any(directory.glob("*.safetensors")):
        return ""
    if any(next(directory.glob(pattern), None) is not None for pattern in _PICKLED):
        return (
            f"'{directory}' has pickled weights, which are never loaded, as reading one runs whatever is in it; write "
            f"safetensors with transformers.AutoModelForCausalLM.from_pretrained('{directory}').save_pretrained(...)"
        )
    return f"'{directory}' has a {CONFIG} of a language model and no weights, such as model.safetensors"
