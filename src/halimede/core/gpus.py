"""Which NVIDIA GPUs this process may use."""

import os
import re
from pathlib import Path


def visible_gpus() -> tuple[int, ...]:
    """Device numbers as CUDA counts them: 0 and up, as many as there are or as CUDA_VISIBLE_DEVICES lists."""
    present = [path for path in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return tuple(range(len(present)))
    names = [name for name in listed.split(",") if name.strip() not in ("", "-1")]
    return tuple(range(min(len(names), len(present))))
