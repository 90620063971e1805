"""What errors of OpenVINO GenAI say, without the places in its source."""

import re
from typing import Final

_PLACE: Final = re.compile(r"^.*\.(?:cc|cpp|hpp|h):\d+:\s*", re.DOTALL)


def told_by(error: RuntimeError) -> str:
    """The message of an error, in one line."""
    return " ".join(_PLACE.sub("", str(error)).split())
