"""The environment variables of SageMaker's Triton container: one table, of which the command and its page are made.

Names and values are those of the container's own `serve`. A variable that is empty counts as not set.
"""

import difflib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from halimede.cli.sagemaker.language_options import (
    ENGINE_PREFIX,
    LANGUAGE_VARIABLES,
    OPTION_PREFIX,
    OPTIONS,
    language_document,
)
from halimede.cli.sagemaker.variable import Variable, idle
from halimede.cli.settings import BOOL, NUMBER, PORT, TEXT, VERBOSITY, Kind, choice

BASE_DIR = "SAGEMAKER_BASE_DIR"
MULTI_MODEL = "SAGEMAKER_MULTI_MODEL"
DEFAULT_MODEL_NAME = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
INFERENCE_TYPE = "SAGEMAKER_TRITON_INFERENCE_TYPE"
PING_MODE = "SAGEMAKER_TRITON_PING_MODE"
OVERRIDE_PING_MODE = "SAGEMAKER_TRITON_OVERRIDE_PING_MODE"
DISABLE_MODEL_NAMESPACING = "SAGEMAKER_TRITON_DISABLE_MODEL_NAMESPACING"
MODEL_LOAD_GPU_LIMIT = "SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT"
CPU_FALLBACK = "SAGEMAKER_TRITON_CPU_FALLBACK"
ADDITIONAL_ARGS = "SAGEMAKER_TRITON_ADDITIONAL_ARGS"

_OURS = "SAGEMAKER_TRITON_"
"""What the names of Triton's variables begin with; the platform has others of its own."""


def _port_range(text: str) -> str:
    low, _, high = text.partition("-")
    try:
        ordered = PORT.parse(low) <= PORT.parse(high)
    except ValueError:
        ordered = False
    if not ordered:
        msg = f"'{text}' is not a range of ports, the lower one first, such as 20000-20999"
        raise ValueError(msg)
    return text


def _share(text: str) -> float:
    share = NUMBER.parse(text)
    if not 0 < share <= 1:
        msg = f"'{text}' is not a share above 0 and up to 1"
        raise ValueError(msg)
    return share


def _arguments(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        # flags may hold secrets, so that they are not repeated
        msg = f"cannot be split into flags as a shell would: {str(error).lower()}"
        raise ValueError(msg) from None


_PING = choice("ready", "live", exact=True)


_WHOLE = frozenset(
    {DEFAULT_MODEL_NAME, INFERENCE_TYPE, PING_MODE, OVERRIDE_PING_MODE, MODEL_LOAD_GPU_LIMIT, ADDITIONAL_ARGS}
)
"""Variables of Triton's whose values have no flags behind them."""

_NO_EFFECT_IN_TRITON = (
    "Triton's container has no such setting either; batching is configured in a model's config.pbtxt."
)
_NO_POOL = "Shared memory is allocated as needed, so there is no pool to size."
_NO_THREADS = "One event loop serves all connections."
_TOOLKIT = "A setting of the SageMaker inference toolkit, which is not part of this server."
_SCRIPT = "A setting of containers that run your own script; this one runs models."

VARIABLES = (
    Variable(
        MULTI_MODEL,
        TEXT,
        "",
        "`true` (exactly this spelling): serve many models, which the platform loads and unloads. Any other value: "
        "serve the single model in the directory `model`.",
    ),
    Variable(
        BASE_DIR,
        TEXT,
        "/opt/ml",
        "Directory in which the platform places models: in `model` in single-model mode, in `models` in multi-model "
        "mode.",
    ),
    Variable("SAGEMAKER_BIND_TO_PORT", PORT, "8080", "Port for the platform.", "sagemaker-port"),
    Variable(
        "SAGEMAKER_SAFE_PORT_RANGE",
        Kind("PORT-PORT", _port_range),
        "",
        "All other ports of the server must be in this range.",
        "sagemaker-safe-port-range",
    ),
    Variable(
        DEFAULT_MODEL_NAME,
        TEXT,
        "the only directory",
        "Model for `/invocations`: the directory of this name in `model`. Required if there are several directories, "
        "such as an ensemble and its steps.",
        "load-model",
    ),
    Variable(
        INFERENCE_TYPE,
        choice("infer", "generate", "generate_stream", exact=True),
        "infer",
        "The call that `/invocations` makes. Multi-model invocations always use infer.",
    ),
    Variable(
        OVERRIDE_PING_MODE,
        _PING,
        "",
        "What `/ping` reports: ready (the server and all of its models are ready) or live. Takes precedence over "
        "SAGEMAKER_TRITON_PING_MODE.",
    ),
    Variable(PING_MODE, _PING, "ready; in multi-model mode live", "The same, with lower precedence."),
    Variable(
        DISABLE_MODEL_NAMESPACING,
        BOOL,
        "true",
        "Whether models of different archives may have equal names; the variable's name says the opposite. "
        "Duplicate names are always allowed; `false` is ignored with a log message.",
    ),
    Variable("SAGEMAKER_TRITON_ALLOW_GRPC", BOOL, "false", "Also serve gRPC.", "allow-grpc"),
    Variable("SAGEMAKER_TRITON_GRPC_PORT", PORT, "8001", "Port for gRPC.", "grpc-port"),
    Variable("SAGEMAKER_TRITON_ALLOW_METRICS", BOOL, "false", "Also serve metrics.", "allow-metrics"),
    Variable("SAGEMAKER_TRITON_METRICS_PORT", PORT, "8002", "Port for metrics.", "metrics-port"),
    Variable(
        "SAGEMAKER_TRITON_LOG_VERBOSE",
        VERBOSITY,
        "false",
        "Level of verbose messages. Triton's container logs every request by default; this one does not.",
        "log-verbose",
    ),
    Variable("SAGEMAKER_TRITON_LOG_INFO", BOOL, "true", "Log informational messages.", "log-info"),
    Variable("SAGEMAKER_TRITON_LOG_WARNING", BOOL, "true", "Log warnings.", "log-warning"),
    Variable("SAGEMAKER_TRITON_LOG_ERROR", BOOL, "true", "Log errors.", "log-error"),
    Variable(
        MODEL_LOAD_GPU_LIMIT,
        Kind("SHARE", _share),
        "",
        "Share of each GPU's memory beyond which no model is loaded. No effect so far: GPU memory is not counted.",
        "model-load-gpu-limit",
    ),
    Variable(
        CPU_FALLBACK,
        BOOL,
        "false",
        "Run instance groups of KIND_GPU on CPUs, with a warning, where their backend can use no GPU. Triton's "
        "container has no such variable.",
        "cpu-fallback",
    ),
    Variable(
        ADDITIONAL_ARGS,
        Kind("FLAGS", _arguments),
        "",
        "Additional flags of `halimede serve`, split as by a shell. They come last; if a flag is given twice, the last "
        "value counts.",
    ),
    idle("SAGEMAKER_TRITON_THREAD_COUNT", _NO_THREADS),
    idle("SAGEMAKER_TRITON_BUFFER_MANAGER_THREAD_COUNT", "Each instance gathers its own batches."),
    idle("SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE", _NO_POOL),
    idle("SAGEMAKER_TRITON_SHM_GROWTH_BYTE_SIZE", _NO_POOL),
    idle(
        "SAGEMAKER_TRITON_TENSORFLOW_VERSION",
        "TensorFlow models use the installed version of TensorFlow.",
    ),
    idle("SAGEMAKER_TRITON_BATCH_SIZE", _NO_EFFECT_IN_TRITON),
    idle("SAGEMAKER_TRITON_MAX_BATCH_DELAY", _NO_EFFECT_IN_TRITON),
    idle("SAGEMAKER_PROGRAM", _SCRIPT),
    idle("SAGEMAKER_SUBMIT_DIRECTORY", _SCRIPT),
    *(
        idle(f"SAGEMAKER_{name}", _TOOLKIT)
        for name in (
            "MODEL_SERVER_WORKERS",
            "MODEL_SERVER_TIMEOUT",
            "MODEL_SERVER_TIMEOUT_SECONDS",
            "MODEL_SERVER_VMARGS",
            "DEFAULT_INVOCATIONS_ACCEPT",
            "STARTUP_TIMEOUT",
            "MAX_PAYLOAD_IN_MB",
        )
    ),
)


@dataclass(frozen=True, slots=True)
class Environment:
    """What the variables say.

    Attributes:
        values: name of each variable that is set → its value, as its kind parses it.
        texts: the same as they were written.
        spliced: name of each variable with flags behind its value → those flags.
        remarks: what to warn of.
    """

    values: Mapping[str, Any]
    texts: Mapping[str, str]
    spliced: Mapping[str, Sequence[str]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def flags(self) -> list[str]:
        """The flags that are the variables' own, in the table's order; those that need a look around are left out."""
        flags: list[str] = []
        for each in VARIABLES:
            if each.flag and each.name in self.texts and each.name not in _WHOLE:
                flags.append(f"--{each.flag}={self.texts[each.name]}")
            flags += self.spliced.get(each.name, ())
        return flags


def read_environment(environment: Mapping[str, str]) -> Environment:
    """What the variables of an environment say.

    Raises:
        click.UsageError: a value is none for its variable.
    """
    known = {each.name: each for each in (*VARIABLES, *LANGUAGE_VARIABLES)}
    texts = {name: text for name, text in environment.items() if name in known and text}
    spliced: dict[str, Sequence[str]] = {}
    for name in texts.keys() - _WHOLE:
        value, *flags = texts[name].split() or ("",)
        if name.startswith(_OURS) and flags and flags[0].startswith("--"):
            texts[name], spliced[name] = value, flags
    values: dict[str, Any] = {}
    remarks = []
    for name, text in texts.items():
        each = known[name]
        if name in OPTIONS:  # those of a pretrained model; other models' configurations say this
            continue
        try:
            values[name] = each.kind.parse(text)
        except ValueError as error:
            msg = f"{name}: {error}"
            raise click.UsageError(msg) from None
        if not each.works:
            remarks.append(f"{name} has no effect here. {each.effect}")
    for name in sorted(environment):
        if name.startswith((_OURS, OPTION_PREFIX, ENGINE_PREFIX)) and name not in known:
            [nearest] = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            remarks.append(f"{name} is not known and has no effect; the nearest is {nearest}")
    return Environment(values, texts, spliced, remarks)


def environment_document() -> str:
    """`docs/sagemaker-environment.md`."""
    lines = [
        "# Environment of the SageMaker container",
        "",
        "<!-- Made by scripts/generate_docs.py from src/halimede/cli/sagemaker/environment.py; change it there. -->",
        "",
        "`halimede sagemaker-serve` reads these variables; see [SageMaker](sagemaker.md). A BOOL is `true`, `on`,",
        "`1`, `false`, `off` or `0`. An empty value counts as not set. An invalid value stops the start with an error",
        "that names its variable.",
        "",
        f"Flags of `halimede serve` behind the value of a variable that begins with `{_OURS}`, such as",
        '`SAGEMAKER_TRITON_LOG_INFO="false --load-model=helper"`, take effect as they do in Triton\'s container, which',
        f"splices values into its command line. `{ADDITIONAL_ARGS}` is the clearer place for them.",
        "",
        "| Variable | Default | Meaning | Flag |",
        "|---|---|---|---|",
        *(_document_row(each) for each in VARIABLES if each.works),
        "",
        "These variables have no effect; the log has a warning if they are set. The same applies to unknown names that",
        f"begin with `{_OURS}`, `{OPTION_PREFIX}` or `{ENGINE_PREFIX}`.",
        "",
        "| Variable | Reason |",
        "|---|---|",
        *(f"| `{each.name}` | {each.effect} |" for each in VARIABLES if not each.works),
        "",
        *language_document(),
    ]
    return "\n".join(lines) + "\n"


def _document_row(each: Variable) -> str:
    metavar = each.kind.metavar.replace("|", "\\|")
    flag = f"[`--{each.flag}`](flags.md)" if each.flag else ""
    return f"| `{each.name}` `{metavar}` | {each.default} | {each.effect} | {flag} |"
