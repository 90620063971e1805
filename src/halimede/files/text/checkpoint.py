"""What a directory of `sentence-transformers`, or a classifier of `transformers`, says about its model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from halimede.config.checkpoints import architecture_in
from halimede.files.targets import TargetError

POOLING_MODES: Final = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
_OLD_MODES: Final = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_CLASSIFIER: Final = "ForSequenceClassification"
_UNBOUNDED: Final = 100_000
"""A `model_max_length` above says that the tokenizer knows no limit."""


class Scores(Enum):
    """What becomes of a classifier's logits, as the pipeline of `transformers` does it."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"
    LOGITS = "logits"


@dataclass(frozen=True, slots=True)
class TextModel:
    """A model that takes text.

    Attributes:
        directory: of the `transformers` model: config.json, tokenizer.json and weights.
        config: its `config.json`.
        max_tokens: longer texts are cut, the tokenizer's own tokens included.
        lower_case: texts are made lower case first.
        prefix: what is put in front of each text.
        pad_id: the id of the padding token.
        pooling: (embeddings) how the tokens' vectors become one, several one after the other; none for a classifier.
        normalise: (embeddings) vectors are scaled to length 1.
        labels: (classifiers) the classes; none for embeddings.
        scores: (classifiers) what becomes of logits.
    """

    directory: Path
    config: Mapping[str, Any]
    max_tokens: int
    lower_case: bool = False
    prefix: str = ""
    pad_id: int = 0
    pooling: tuple[str, ...] = ()
    normalise: bool = False
    labels: tuple[str, ...] = ()
    scores: Scores = Scores.SOFTMAX

    @property
    def kind(self) -> str:
        """What it is called in messages."""
        return "text classifier" if self.labels else "sentence-transformers model"


def is_text_model(directory: Path) -> bool:
    """Whether the directory is one of `sentence-transformers`, or of a sequence classifier of `transformers`."""
    if (directory / "modules.json").is_file():
        return True
    return architecture_in(directory).endswith(_CLASSIFIER)


def read_text_model(directory: Path) -> TextModel:
    """What the files of such a directory say.

    Raises:
        TargetError: one is missing, or asks for something that cannot be served.
    """
    modules = directory / "modules.json"
    if not modules.is_file():
        return _read_classifier(directory)
    found: dict[str, Path] = {}
    for number, module in enumerate(_read(modules, list)):
        kind = str(module.get("type", "")).rpartition(".")[2]
        if kind not in ("Transformer", "Pooling", "Normalize") or kind in found:
            raise TargetError(
                f"'{modules}': module {number} is '{module.get('type')}'; what can be served is one Transformer, one "
                "Pooling and, at the end, a Normalize"
            )
        found[kind] = directory / str(module.get("path", ""))
    if list(found) not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise TargetError(
            f"'{modules}' has {', '.join(found) or 'no modules'}; needed are a Transformer, then a Pooling and, at the "
            "end, perhaps a Normalize"
        )
    transformer, pooling = found["Transformer"], found["Pooling"] / "config.json"
    config = _model_config(transformer)
    settings = _optional(transformer / "sentence_bert_config.json")
    return TextModel(
        transformer,
        config,
        int(settings.get("max_seq_length") or 0) or _max_tokens(transformer, config),
        lower_case=bool(settings.get("do_lower_case")),
        prefix=_prefix(directory),
        pad_id=_pad_id(config),
        pooling=_pooling_modes(pooling),
        normalise="Normalize" in found,
    )


def _read_classifier(directory: Path) -> TextModel:
    config = _model_config(directory)
    names = config.get("id2label") or {
        "0": "LABEL_0",
        "1": "LABEL_1",
    }  # what `transformers` takes for granted
    labels = tuple(str(names[key]) for key in sorted(names, key=int))
    problem = config.get("problem_type")
    if problem == "regression":
        scores = Scores.LOGITS
    else:
        several = problem == "multi_label_classification" or len(labels) == 1
        scores = Scores.SIGMOID if several else Scores.SOFTMAX
    return TextModel(
        directory,
        config,
        _max_tokens(directory, config),
        pad_id=_pad_id(config),
        labels=labels,
        scores=scores,
    )


def _model_config(directory: Path) -> Mapping[str, Any]:
    """`config.json` of a directory that has a tokenizer beside it."""
    config: Mapping[str, Any] = _read(directory / "config.json", dict)
    if not (directory / "tokenizer.json").is_file():
        raise TargetError(
            f"'{directory}' has no tokenizer.json; write it with "
            f"transformers.AutoTokenizer.from_pretrained('{directory}').save_pretrained('{directory}')"
        )
    return config


def _pooling_modes(file: Path) -> tuple[str, ...]:
    config = _read(file, dict)
    given = config.get("pooling_mode") or [mode for key, mode in _OLD_MODES.items() if config.get(key)]
    modes = (given,) if isinstance(given, str) else tuple(given)
    asked = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    unknown = [key for key in asked if key not in _OLD_MODES]
    unknown += [mode for mode in modes if mode not in POOLING_MODES]
    if unknown:
        raise TargetError(f"'{file}' asks for pooling '{unknown[0]}'; known are {', '.join(POOLING_MODES)}")
    if config.get("include_prompt") is False:
        raise TargetError(
            f"'{file}' leaves the prompt out of pooling (include_prompt: false), which is not supported"
        )
    return modes or ("mean",)


def _prefix(directory: Path) -> str:
    """The prompt that `encode` puts in front of every text."""
    config = _optional(directory / "config_sentence_transformers.json")
    name = config.get("default_prompt_name")
    return str((config.get("prompts") or {}).get(name, "")) if name else ""


def _max_tokens(directory: Path, config: Mapping[str, Any]) -> int:
    """How long a text may be by the tokenizer and by the number of positions."""
    limits = [int(config.get("max_position_embeddings") or _UNBOUNDED)]
    if is_roberta(config):
        limits[0] -= _pad_id(config) + 1  # positions are counted from there
    tokenizer = _optional(directory / "tokenizer_config.json")
    limits.append(int(min(tokenizer.get("model_max_length") or _UNBOUNDED, _UNBOUNDED)))
    return max(1, min(limits))


def is_roberta(config: Mapping[str, Any]) -> bool:
    """Whether the model is BERT but for its positions and its classifier."""
    return config.get("model_type") in ("roberta", "xlm-roberta", "camembert")


def is_bert(config: Mapping[str, Any]) -> bool:
    """Whether the model is one of those that `bert.BertGraph` builds from its weights."""
    return (
        (config.get("model_type") == "bert" or is_roberta(config))
        and config.get("hidden_act") == "gelu"
        and config.get("position_embedding_type", "absolute") == "absolute"
        and not config.get("is_decoder")
    )


def _pad_id(config: Mapping[str, Any]) -> int:
    return int(config.get("pad_token_id") or 0)


def _optional(file: Path) -> dict[str, Any]:
    return _read(file, dict) if file.is_file() else {}


def _read(file: Path, kind: type[dict[str, Any]] | type[list[Any]]) -> Any:
    """The JSON of a file.

    Raises:
        TargetError: it is not there, or is something else.
    """
    try:
        document = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise TargetError(f"'{file}' is missing; the whole directory that was saved is needed") from None
    except (OSError, ValueError) as error:
        raise TargetError(f"'{file}' cannot be read as JSON: {error}") from None
    if not isinstance(document, kind) or (
        kind is list and not all(isinstance(each, dict) for each in document)
    ):
        raise TargetError(f"'{file}' must be a JSON {'object' if kind is dict else 'list of objects'}")
    return document
