"""The agent `checksum`: a model is loaded only if its files have the checksums that its configuration says.

It runs by itself, as any agent: only the standard library can be imported.
"""

import hashlib
from pathlib import PurePosixPath
from typing import Any

_ALGORITHMS = ("md5", "sha256")


class TritonRepositoryAgent:
    """Compares files of the model to the parameters ``<algorithm>:<path relative to the model's directory>``."""

    def load(self, model: Any) -> None:
        """Refuse the model unless each file has the checksum that a parameter says."""
        for key, expected in sorted(model.parameters.items()):
            algorithm, colon, name = key.partition(":")
            if not colon or not name:
                model.refuse(
                    f"parameter '{key}' of the agent checksum is not of the form MD5:<path> or SHA256:<path>"
                )
            if algorithm.lower() not in _ALGORITHMS:
                model.refuse(f"Unsupported checksum algorithm: {algorithm}; it must be MD5 or SHA256")
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                model.refuse(f"file '{name}' of the agent checksum must lie in the model's directory")
            try:
                with (model.location / path).open("rb") as file:
                    found = hashlib.file_digest(file, algorithm.lower()).hexdigest()
            except (OSError, ValueError) as error:
                model.refuse(
                    f"cannot read file '{name}' for its checksum: {getattr(error, 'strerror', error)}"
                )
            if found != expected.lower():
                model.refuse(
                    f"Mismatched {algorithm.upper()} hash for file {name}, expect: {expected}, got: {found}"
                )
