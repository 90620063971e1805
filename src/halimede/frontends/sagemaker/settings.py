"""What the SageMaker front end is told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from halimede.frontends.decoders import Decoders
from halimede.frontends.http.codec.response import MAX_JSON_BYTES
from halimede.frontends.restrictions import HeaderPattern, Restriction
from halimede.frontends.shared_memory.registry import Regions

DEFAULT_MODEL: Final = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
"""The environment variable with the model of ``/invocations``."""

INFERENCE_TYPE: Final = "SAGEMAKER_TRITON_INFERENCE_TYPE"
"""The environment variable that says what ``/invocations`` does."""

PING_MODE: Final = "SAGEMAKER_TRITON_PING_MODE"
"""The environment variable that says what ``/ping`` tells."""

TGI_COMPAT: Final = "OPTION_TGI_COMPAT"
"""The environment variable by which texts are told as TGI's container does."""

OUTPUT_FORMATTER: Final = "OPTION_OUTPUT_FORMATTER"
"""The environment variable that says what streams of texts consist of."""


class InferenceType(Enum):
    """What ``/invocations`` does (`INFERENCE_TYPE`)."""

    INFER = "infer"
    GENERATE = "generate"
    GENERATE_STREAM = "generate_stream"


class PingMode(Enum):
    """What ``/ping`` tells (`PING_MODE`): whether the server is up, or ready as well."""

    LIVE = "live"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class TextFormat:
    """How texts are told that were asked for by ``inputs``.

    Attributes:
        tgi: as TGI's container does, rather than as LMI's (`TGI_COMPAT`).
        events: streams consist of server-sent events, rather than of lines of JSON (`OUTPUT_FORMATTER`).
    """

    tgi: bool = False
    events: bool = False


@dataclass(frozen=True, slots=True)
class SagemakerSettings:
    """What the command line and the environment decide.

    Attributes:
        default_model: the model of ``/invocations``; "" for the only one there is.
        inference_type: what ``/invocations`` does.
        ping_mode: what ``/ping`` tells.
        max_input_size: largest JSON or raw input in bytes (`--http-max-input-size`).
        max_output_size: most JSON of a response in bytes (`--http-max-output-size`).
        restrictions: category of calls → the header that opens it (`--http-restricted-api`).
        forward_pattern: finds the headers that become parameters (`--http-header-forward-pattern`).
        regions: clients' shared memory.
        decoders: decode large requests.
        text_format: how texts are told.
    """

    default_model: str = ""
    inference_type: InferenceType = InferenceType.INFER
    ping_mode: PingMode = PingMode.READY
    max_input_size: int = 67_108_864
    max_output_size: int = MAX_JSON_BYTES
    restrictions: Mapping[str, Restriction] = field(default_factory=dict)
    forward_pattern: HeaderPattern | None = None
    regions: Regions = field(default_factory=Regions)
    decoders: Decoders = field(default_factory=Decoders)
    text_format: TextFormat = field(default_factory=TextFormat)
