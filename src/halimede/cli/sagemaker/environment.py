"""The environment variables of SageMaker's Triton container: one table, of which the command and its page are made.

Names and values are those of the container's own `serve`. A variable that is empty counts as not set.
"""

import difflib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from halimede.cli.settings import BOOL, NUMBER, PORT, TEXT, VERBOSITY, Kind, choice

BASE_DIR = "SAGEMAKER_BASE_DIR"
MULTI_MODEL = "SAGEMAKER_MULTI_MODEL"
DEFAULT_MODEL_NAME = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
INFERENCE_TYPE = "SAGEMAKER_TRITON_INFERENCE_TYPE"
PING_MODE = "SAGEMAKER_TRITON_PING_MODE"
OVERRIDE_PING_MODE = "SAGEMAKER_TRITON_OVERRIDE_PING_MODE"
DISABLE_MODEL_NAMESPACING = "SAGEMAKER_TRITON_DISABLE_MODEL_NAMESPACING"
MODEL_LOAD_GPU_LIMIT = "SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT"
ADDITIONAL_ARGS = "SAGEMAKER_TRITON_ADDITIONAL_ARGS"

_OURS = "SAGEMAKER_TRITON_"
"""What the names of Triton's variables begin with; the platform has others of its own."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable.

    Attributes:
        name: its name.
        kind: the kind of its value.
        default: what holds without it, as the page shows it; "" for nothing.
        effect: what it does, in a sentence or two; why it does nothing, if it does nothing here.
        flag: the flag of `halimede serve` that gets its value; "" if it is no flag.
        works: whether it does something here.
    """

    name: str
    kind: Kind[Any]
    default: str
    effect: str
    flag: str = ""
    works: bool = True


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


_PING = choice("ready", "live")


def _idle(name: str, why: str) -> Variable:
    """A variable that does nothing here."""
    return Variable(name, TEXT, "", why, works=False)


_NO_EFFECT_IN_TRITON = (
    "Triton's container has no such setting either; a model's config.pbtxt says how it batches."
)
_NO_POOL = "Shared memory is taken as it is needed, so that there is no pool whose size could be set."
_NO_THREADS = "One event loop serves all connections."
_TOOLKIT = "A setting of the SageMaker inference toolkit, which is no part of this server."
_SCRIPT = "A setting of containers that run a script of yours; this one runs models."

VARIABLES = (
    Variable(
        MULTI_MODEL,
        TEXT,
        "",
        "`true`, in just these letters, serves many models, which the platform loads and unloads. Anything else serves "
        "the one model of the directory `model`.",
    ),
    Variable(
        BASE_DIR,
        TEXT,
        "/opt/ml",
        "Directory in which the platform puts what is served: `model` in single-model mode, `models` in multi-model "
        "mode.",
    ),
    Variable("SAGEMAKER_BIND_TO_PORT", PORT, "8080", "Port to serve the platform at.", "sagemaker-port"),
    Variable(
        "SAGEMAKER_SAFE_PORT_RANGE",
        Kind("PORT-PORT", _port_range),
        "",
        "All other ports that are served must lie in this range.",
        "sagemaker-safe-port-range",
    ),
    Variable(
        DEFAULT_MODEL_NAME,
        TEXT,
        "the only directory",
        "Model that `/invocations` is for: the directory of that name in `model`. It must be given where there are "
        "several, such as an ensemble and its steps.",
        "load-model",
    ),
    Variable(
        INFERENCE_TYPE,
        choice("infer", "generate", "generate_stream"),
        "infer",
        "What `/invocations` does. Multi-model invocations always infer.",
    ),
    Variable(
        OVERRIDE_PING_MODE,
        _PING,
        "",
        "What `/ping` tells: whether the server is ready, with all of its models, or that it is live. Goes before the "
        "next one.",
    ),
    Variable(PING_MODE, _PING, "ready; in multi-model mode live", "The same."),
    Variable(
        DISABLE_MODEL_NAMESPACING,
        BOOL,
        "true",
        "Whether models of different archives may have equal names; the variable's name says the opposite. "
        "Duplicate names are always allowed; `false` is ignored with a log message.",
    ),
    Variable("SAGEMAKER_TRITON_ALLOW_GRPC", BOOL, "false", "Whether to serve gRPC as well.", "allow-grpc"),
    Variable("SAGEMAKER_TRITON_GRPC_PORT", PORT, "8001", "Port to serve gRPC at.", "grpc-port"),
    Variable(
        "SAGEMAKER_TRITON_ALLOW_METRICS", BOOL, "false", "Whether to serve metrics as well.", "allow-metrics"
    ),
    Variable("SAGEMAKER_TRITON_METRICS_PORT", PORT, "8002", "Port to serve metrics at.", "metrics-port"),
    Variable(
        "SAGEMAKER_TRITON_LOG_VERBOSE",
        VERBOSITY,
        "false",
        "How much more to log. Triton's container logs every request unless told otherwise; this one does when told "
        "so.",
        "log-verbose",
    ),
    Variable("SAGEMAKER_TRITON_LOG_INFO", BOOL, "true", "Whether to log what happens.", "log-info"),
    Variable("SAGEMAKER_TRITON_LOG_WARNING", BOOL, "true", "Whether to log warnings.", "log-warning"),
    Variable("SAGEMAKER_TRITON_LOG_ERROR", BOOL, "true", "Whether to log errors.", "log-error"),
    Variable(
        MODEL_LOAD_GPU_LIMIT,
        Kind("SHARE", _share),
        "",
        "Share of each GPU's memory beyond which no model is loaded. No effect so far: memory of GPUs is not counted.",
        "model-load-gpu-limit",
    ),
    Variable(
        ADDITIONAL_ARGS,
        Kind("FLAGS", _arguments),
        "",
        "Further flags of `halimede serve`, split as a shell splits them. They come last, and of a flag that is given "
        "twice the last one counts.",
    ),
    _idle("SAGEMAKER_TRITON_THREAD_COUNT", _NO_THREADS),
    _idle("SAGEMAKER_TRITON_BUFFER_MANAGER_THREAD_COUNT", "The instances gather their batches themselves."),
    _idle("SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE", _NO_POOL),
    _idle("SAGEMAKER_TRITON_SHM_GROWTH_BYTE_SIZE", _NO_POOL),
    _idle(
        "SAGEMAKER_TRITON_TENSORFLOW_VERSION",
        "TensorFlow models run in the version of TensorFlow that is installed.",
    ),
    _idle("SAGEMAKER_TRITON_BATCH_SIZE", _NO_EFFECT_IN_TRITON),
    _idle("SAGEMAKER_TRITON_MAX_BATCH_DELAY", _NO_EFFECT_IN_TRITON),
    _idle("SAGEMAKER_PROGRAM", _SCRIPT),
    _idle("SAGEMAKER_SUBMIT_DIRECTORY", _SCRIPT),
    *(
        _idle(f"SAGEMAKER_{name}", _TOOLKIT)
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
        remarks: what to warn of.
    """

    values: Mapping[str, Any]
    texts: Mapping[str, str]
    remarks: list[str] = field(default_factory=list)

    def flags(self) -> list[str]:
        """The flags that are the variables' own, in the table's order; those that need a look around are left out."""
        elsewhere = (DEFAULT_MODEL_NAME, MODEL_LOAD_GPU_LIMIT)
        return [
            f"--{each.flag}={self.texts[each.name]}"
            for each in VARIABLES
            if each.flag and each.name in self.texts and each.name not in elsewhere
        ]


def read_environment(environment: Mapping[str, str]) -> Environment:
    """What the variables of an environment say.

    Raises:
        click.UsageError: a value is none for its variable.
    """
    known = {each.name: each for each in VARIABLES}
    texts = {name: text for name, text in environment.items() if name in known and text}
    values: dict[str, Any] = {}
    remarks = []
    for name, text in texts.items():
        each = known[name]
        try:
            values[name] = each.kind.parse(text)
        except ValueError as error:
            msg = f"{name}: {error}"
            raise click.UsageError(msg) from None
        if not each.works:
            remarks.append(f"{name} has no effect here. {each.effect}")
    for name in sorted(environment):
        if name.startswith(_OURS) and name not in known:
            [nearest] = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            remarks.append(f"{name} is not known and has no effect; the nearest is {nearest}")
    return Environment(values, texts, remarks)


def environment_document() -> str:
    """`docs/sagemaker-environment.md`."""
    lines = [
        "# Environment of the SageMaker container",
        "",
        "<!-- Made by scripts/generate_docs.py from src/halimede/cli/sagemaker/environment.py; change it there. -->",
        "",
        "`halimede sagemaker-serve` reads these variables; [SageMaker](sagemaker.md) says what it is. A BOOL is",
        "`true`, `on`, `1`, `false`, `off` or `0`; an empty value is none. A value that is wrong ends the start with",
        "an error that names its variable.",
        "",
        "| Variable | Default | What it does | Flag |",
        "|---|---|---|---|",
        *(_document_row(each) for each in VARIABLES if each.works),
        "",
        "These do nothing here, and the log says so if they are set; so it does of unknown names that begin with",
        f"`{_OURS}`.",
        "",
        "| Variable | Why |",
        "|---|---|",
        *(f"| `{each.name}` | {each.effect} |" for each in VARIABLES if not each.works),
    ]
    return "\n".join(lines) + "\n"


def _document_row(each: Variable) -> str:
    metavar = each.kind.metavar.replace("|", "\\|")
    flag = f"[`--{each.flag}`](flags.md)" if each.flag else ""
    return f"| `{each.name}` `{metavar}` | {each.default} | {each.effect} | {flag} |"
