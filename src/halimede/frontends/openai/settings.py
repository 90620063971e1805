"""What the OpenAI front end is told."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from halimede.frontends.decoders import Decoders
from halimede.frontends.restrictions import HeaderPattern, Restriction


@dataclass(frozen=True, slots=True)
class OpenaiSettings:
    """What the command line decides.

    Attributes:
        max_input_size: largest request body in bytes (`--http-max-input-size`).
        restrictions: category of calls → the header that opens it (`--http-restricted-api`).
        forward_pattern: finds the headers that become parameters (`--http-header-forward-pattern`).
        decoders: decode large requests.
    """

    max_input_size: int = 67_108_864
    restrictions: Mapping[str, Restriction] = field(default_factory=dict)
    forward_pattern: HeaderPattern | None = None
    decoders: Decoders = field(default_factory=Decoders)
