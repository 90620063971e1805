"""The settings of a model that OpenVINO runs: its parameters, as what they mean to OpenVINO and to batches.

The parameters are those of Triton's OpenVINO backend.
"""

from dataclasses import dataclass

from halimede.backends.parameters import choice_parameter, integer_parameter, parse_integer, text_parameter
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError

Properties = dict[str, str | int | bool]

CPU = "CPU"

_HINTS = {"LATENCY": "LATENCY", "THROUGHPUT": "THROUGHPUT"}
_SWITCH = {"YES": True, "NO": False}
_FORMER = {
    "CPU_THREADS_NUM": "INFERENCE_NUM_THREADS",
    "ENFORCE_BF16": "HINT_BF16",
    "CPU_BIND_THREAD": "none: threads are not bound to processors",
    "CPU_THROUGHPUT_STREAMS": "NUM_STREAMS",
    "SKIP_DYNAMIC_BATCHSIZE": "SKIP_OV_DYNAMIC_BATCHSIZE",
}
"""Parameters of the backend's first versions, each with what has taken its place."""


@dataclass(frozen=True, slots=True)
class OpenVinoSettings:
    """What the parameters of a model say.

    Attributes:
        device: OpenVINO's name of the device, such as ``CPU``.
        extension: library with operators that OpenVINO lacks, "" for none; relative to the model's directory.
        fixed_batch: the model is compiled for batches of `max_batch_size` rows only.
        pad: smaller batches are filled up with rows of zeros, which are cut off again; else they are errors.
        reshape: the model's inputs take the shapes of the configuration.
        hint: what OpenVINO tunes for, ``LATENCY`` or ``THROUGHPUT``; None for neither.
        streams: batches that run at once: a number, ``AUTO`` or ``NUMA``; None leaves it to the instances.
        threads: threads of a run; None for those that the server has.
        compile_threads: threads that compile the model; None for as many as OpenVINO likes.
        bf16: computes in bfloat16 where the device can.
    """

    device: str
    extension: str
    fixed_batch: bool
    pad: bool
    reshape: bool
    hint: str | None
    streams: str | None
    threads: int | None
    compile_threads: int | None
    bf16: bool

    @classmethod
    def of(cls, config: ModelConfig) -> "OpenVinoSettings":
        """The settings of a configuration.

        Raises:
            InvalidArgumentError: a parameter is none of this version's, or has no such value.
        """
        for key, successor in _FORMER.items():
            if key in config.parameters:
                msg = (
                    f"model '{config.name}': the parameter '{key}' is of an older OpenVINO backend; "
                    f"remove it (its successor is {successor})"
                )
                raise InvalidArgumentError(msg)
        fixed_batch = _switch(config, "SKIP_OV_DYNAMIC_BATCHSIZE")
        if fixed_batch and config.max_batch_size == 0:
            msg = (
                f"model '{config.name}': the parameter 'SKIP_OV_DYNAMIC_BATCHSIZE' fixes the batch size at "
                f"max_batch_size, which the configuration does not say"
            )
            raise InvalidArgumentError(msg)
        return cls(
            device=(text_parameter(config, "TARGET_DEVICE") or CPU).upper(),
            extension=text_parameter(config, "CPU_EXTENSION_PATH") or "",
            fixed_batch=fixed_batch,
            pad=_switch(config, "ENABLE_BATCH_PADDING"),
            reshape=_switch(config, "RESHAPE_IO_LAYERS"),
            hint=choice_parameter(config, "PERFORMANCE_HINT", _HINTS),
            streams=_streams(config),
            threads=integer_parameter(config, "INFERENCE_NUM_THREADS") or None,
            compile_threads=integer_parameter(config, "COMPILATION_NUM_THREADS") or None,
            bf16=_switch(config, "HINT_BF16"),
        )

    def properties(self, cpu_threads: int, instances: int) -> Properties:
        """What the model is compiled with.

        Args:
            cpu_threads: threads that the server may use.
            instances: instances of the model, which run side by side.
        """
        properties: Properties = {}
        threads = self.threads or cpu_threads
        if self.hint is not None:
            properties["PERFORMANCE_HINT"] = self.hint
        if self.streams is not None:
            properties["NUM_STREAMS"] = self.streams
        elif self.hint is None:
            # a stream has threads of its own; without one, a run needs only the thread that asks for it
            alone = self.device == CPU and threads == 1
            properties["NUM_STREAMS"] = "0" if alone else str(max(1, min(instances, threads)))
        if self.device == CPU:
            properties["INFERENCE_NUM_THREADS"] = threads
            # a pinned thread waits for its processor although another, which other models share, may be free
            properties["ENABLE_CPU_PINNING"] = False
            # else the answers of a model would depend on what the processor can do
            properties["INFERENCE_PRECISION_HINT"] = "bf16" if self.bf16 else "f32"
        elif self.bf16:
            properties["INFERENCE_PRECISION_HINT"] = "bf16"
        return properties


def _switch(config: ModelConfig, key: str) -> bool:
    text = text_parameter(config, key)
    if text is None:
        return False
    value = _SWITCH.get(text.upper())
    if value is None:
        msg = f"model '{config.name}': parameter '{key}' must be YES or NO, got '{text}'"
        raise InvalidArgumentError(msg)
    return value


def _streams(config: ModelConfig) -> str | None:
    text = text_parameter(config, "NUM_STREAMS")
    if text is None or text.upper() in ("AUTO", "NUMA"):
        return None if text is None else text.upper()
    what = f"model '{config.name}': parameter 'NUM_STREAMS' (AUTO, NUMA or a number)"
    return str(parse_integer(what, text, 1))
