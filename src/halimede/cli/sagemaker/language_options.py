"""Options of LMI's and TGI's containers: one table, of which the command and its page are made.

An option ``name`` is the variable ``OPTION_NAME``, or ``option.name`` in the model's ``serving.properties``. Some have
variables of other names besides.
"""

from dataclasses import dataclass
from typing import Any

from halimede.cli.sagemaker.variable import Variable, idle
from halimede.cli.settings import BOOL, POSITIVE, TEXT, Kind, choice

OPTION_PREFIX = "OPTION_"
ENGINE_PREFIX = "SERVING_"
MODEL_ID = "model_id"
DTYPE = "dtype"


@dataclass(frozen=True, slots=True)
class LanguageOption:
    """An option.

    Attributes:
        name: its name, as after ``option.``.
        kind: the kind of its value; raises ValueError for what cannot be honoured.
        effect: what it does.
        parameter: the parameter of the model's configuration that gets its value; "" for none.
        others: other variables that say the same, in order of precedence.
    """

    name: str
    kind: Kind[Any]
    effect: str
    parameter: str = ""
    others: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The variable that says it."""
        return OPTION_PREFIX + self.name.upper()

    @property
    def properties(self) -> list[str]:
        """The properties that say it, in order of precedence."""
        return [property_of(name) for name in (self.variable, *self.others) if name.startswith(OPTION_PREFIX)]


def property_of(variable: str) -> str:
    """The property that says what a variable does."""
    return f"option.{variable.removeprefix(OPTION_PREFIX).lower()}"


DTYPES = {
    "auto": "auto", "fp32": "float32", "float32": "float32", "fp16": "float16", "float16": "float16",
    "bf16": "bfloat16", "bfloat16": "bfloat16",
}  # fmt: skip
"""What the weights are converted to → as `transformers` calls it."""


def _refusing(metavar: str, allowed: tuple[str, ...], why: str) -> Kind[str]:
    """Values that ask for nothing special; all others are refused with that reason."""

    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"'{text}' is not supported here: {why}")
        return text.lower()

    return Kind(metavar, parse)


_DEVICES = _refusing(
    "COUNT",
    ("1", "max"),
    "a model is not divided among GPUs; each has a whole copy. Leave it out, or set it to 1",
)

LANGUAGE_OPTIONS = (
    LanguageOption(
        MODEL_ID,
        TEXT,
        "Directory of the model, such as `/opt/ml/model`, which is the default. Nothing is downloaded, so names of a "
        "hub and S3 URIs are refused.",
        others=("HF_MODEL_ID",),
    ),
    LanguageOption(
        "max_model_len",
        POSITIVE,
        "The most tokens of prompt and text together.",
        "max_model_len",
        ("MAX_TOTAL_TOKENS",),
    ),
    LanguageOption(
        "max_rolling_batch_size",
        POSITIVE,
        "Texts that are written at once.",
        "max_num_seqs",
        ("OPTION_MAX_NUM_SEQS",),
    ),
    LanguageOption(
        "max_rolling_batch_prefill_tokens",
        POSITIVE,
        "Tokens of prompts that one step reads.",
        "max_num_batched_tokens",
        ("OPTION_MAX_NUM_BATCHED_TOKENS", "MAX_BATCH_PREFILL_TOKENS"),
    ),
    LanguageOption(
        DTYPE,
        choice(*DTYPES, exact=True),
        "Type of the weights. Without it, as the files have it.",
    ),
    LanguageOption(
        "enable_prefix_caching",
        BOOL,
        "Prompts that begin alike are computed once; models of OpenVINO only.",
        "enable_prefix_caching",
    ),
    LanguageOption(
        "rolling_batch",
        choice("auto", "vllm", "lmi-dist", "trtllm", "scheduler", "disable", exact=True),
        "All values mean continuous batching by this server, as does `disable` in LMI's asynchronous mode.",
    ),
    LanguageOption(
        "tensor_parallel_degree",
        _DEVICES,
        "1, or `max` on a machine with at most one GPU. Other values are refused.",
        others=("TENSOR_PARALLEL_DEGREE", "SM_NUM_GPUS"),
    ),
    LanguageOption("pipeline_parallel_degree", _DEVICES, "1. Other values are refused."),
    LanguageOption(
        "quantize",
        _refusing("NAME", (), "weights are served as they lie in the files"),
        "Refused: weights are served as they lie in the files.",
        others=("HF_MODEL_QUANTIZE",),
    ),
    LanguageOption(
        "trust_remote_code",
        _refusing("BOOL", ("false",), "code beside the weights is not run"),
        "`true` is refused: code beside the weights is not run.",
        others=("HF_MODEL_TRUST_REMOTE_CODE",),
    ),
    LanguageOption(
        "tgi_compat",
        BOOL,
        "Answers to `inputs` are as TGI's: [formats](hosting-language-models.md#formats).",
    ),
    LanguageOption(
        "output_formatter",
        choice("json", "jsonlines", "sse", exact=True),
        "Streams of `inputs` are lines of JSON, or server-sent events (`sse`).",
    ),
)

OPTIONS = frozenset(name for each in LANGUAGE_OPTIONS for name in (each.variable, *each.others))
"""The variables of all options."""

CONFIGURING = OPTIONS - {"OPTION_TGI_COMPAT", "OPTION_OUTPUT_FORMATTER"}
"""Those that say how a pretrained model is configured."""

_ONE_PROCESS = "The model is started by this server; there are no workers to configure."
_IDLE = (
    idle("OPTION_ENTRYPOINT", "The backend is chosen by the model's files."),
    idle("OPTION_ASYNC_MODE", "Requests are always served asynchronously."),
    idle("OPTION_ENGINE", "The backend is chosen by the model's files."),
    idle("OPTION_REVISION", "Nothing is downloaded from a hub."),
    idle("HF_MODEL_REVISION", "Nothing is downloaded from a hub."),
    idle("OPTION_ENABLE_STREAMING", 'Requests say it: `"stream": true`.'),
    idle("OPTION_MPI_MODE", _ONE_PROCESS),
    idle("OPTION_PARALLEL_LOADING", _ONE_PROCESS),
    idle(
        "OPTION_MODEL_LOADING_TIMEOUT", "The platform has a timeout of its own for the start of containers."
    ),
    idle("SERVING_FAIL_FAST", "The start always fails if the model cannot be loaded."),
    idle("SERVING_LOAD_MODELS", _ONE_PROCESS),
    idle("SERVING_MIN_WORKERS", _ONE_PROCESS),
    idle("SERVING_MAX_WORKERS", _ONE_PROCESS),
    idle(
        "SERVING_BATCH_SIZE", "Batches are formed in each step; `OPTION_MAX_ROLLING_BATCH_SIZE` limits them."
    ),
    idle(
        "SERVING_JOB_QUEUE_SIZE", "Set `SAGEMAKER_TRITON_ADDITIONAL_ARGS=--max-inflight-requests=N` instead."
    ),
    idle("MAX_INPUT_LENGTH", "`OPTION_MAX_MODEL_LEN` limits prompt and text together."),
    idle("MAX_INPUT_TOKENS", "`OPTION_MAX_MODEL_LEN` limits prompt and text together."),
    idle(
        "MAX_CONCURRENT_REQUESTS", "Set `SAGEMAKER_TRITON_ADDITIONAL_ARGS=--max-inflight-requests=N` instead."
    ),
)

IDLE_PROPERTIES = {
    property_of(each.name): each.effect for each in _IDLE if each.name.startswith(OPTION_PREFIX)
}
"""Properties that do nothing here → why."""

LANGUAGE_VARIABLES = (
    *(
        Variable(name, each.kind, "", each.effect)
        for each in LANGUAGE_OPTIONS
        for name in (each.variable, *each.others)
    ),
    *_IDLE,
)


def language_document() -> list[str]:
    """The lines of `docs/sagemaker-environment.md` on these options."""
    lines = [
        "## Language models",
        "",
        "If `model` is a [pretrained model](hosting-language-models.md#pretrained-models) without a `config.pbtxt`,",
        "these variables of LMI's and TGI's containers are read, too. Each can also be set in the model's",
        "`serving.properties`, as `option.` with the name in lower case, which takes precedence. A model with a",
        "`config.pbtxt` is configured there; only `OPTION_TGI_COMPAT` and `OPTION_OUTPUT_FORMATTER` have an effect.",
        "",
        "| Variable | Meaning | Parameter |",
        "|---|---|---|",
    ]
    for each in LANGUAGE_OPTIONS:
        names = ", ".join(f"`{name}`" for name in (each.variable, *each.others))
        parameter = f"`{each.parameter}`" if each.parameter else ""
        lines.append(f"| {names} | {each.effect} | {parameter} |")
    lines += ["", "These have no effect:", "", "| Variable | Reason |", "|---|---|"]
    return lines + [f"| `{each.name}` | {each.effect} |" for each in _IDLE]
