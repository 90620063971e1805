"""Why a sequence is over, as a Python model's `on_sequence_end` is told."""

from typing import Final

ENDED: Final = "end"
"""Its request with the END flag was answered."""

RESTARTED: Final = "restart"
"""A request with the START flag came for the same correlation id before the END."""

IDLE: Final = "idle"
"""No request came for `max_sequence_idle_microseconds`."""

CANCELLED: Final = "cancelled"
"""A request of it was cancelled while it waited, or its client is gone."""

UNLOADED: Final = "unload"
"""The model is unloaded, or the server stops."""

LOST: Final = "lost"
"""The instance that kept its state has ended."""
