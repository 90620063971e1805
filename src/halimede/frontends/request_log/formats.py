"""The forms that the access log has."""

from typing import Final

ACCESS_LOG_FORMATS: Final = ("none", "text", "json")
"""What `--access-log` takes."""
