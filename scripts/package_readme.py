"""The README as the package's description: its links lead into the source repository, wherever it is read."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s]+)(?=\))")


class ReadmeHook(MetadataHookInterface):
    """Sets `readme`, which `pyproject.toml` declares as dynamic. `Source` among its URLs is where links lead."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` in the project's metadata."""
        files = f"{metadata['urls']['Source']}/blob/main"
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": _RELATIVE.sub(lambda link: f"{files}/{link[1]}", text),
        }
