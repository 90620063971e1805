"""Flags that others have replaced."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import BOOL, COUNT, FILE, INT, count, form, repeated, setting

DEPRECATED: Final = "Deprecated"


@dataclass(frozen=True, kw_only=True)
class DeprecatedOptions:
    """The flags of the group "Deprecated"."""

    strict_model_config: bool = setting(DEPRECATED, BOOL, False, "Use --disable-auto-complete-config.")
    response_cache_byte_size: int = setting(
        DEPRECATED, count("BYTES"), 0, "Use --cache-config=local,size=BYTES."
    )
    trace_level: tuple[str, ...] = repeated(DEPRECATED, form("LEVEL"), "Use --trace-config level=LEVEL.")
    trace_rate: int = setting(DEPRECATED, COUNT, 1000, "Use --trace-config rate=COUNT.")
    trace_count: int = setting(DEPRECATED, INT, -1, "Use --trace-config count=COUNT.")
    trace_file: str = setting(DEPRECATED, FILE, "", "Use --trace-config triton,file=FILE.")
    trace_log_frequency: int = setting(DEPRECATED, COUNT, 0, "Use --trace-config triton,log-frequency=COUNT.")
