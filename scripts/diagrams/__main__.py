"""Write the diagrams. `--check` only says whether they are fresh."""

import sys
from pathlib import Path

from scripts import generated
from scripts.diagrams.host import deployment, residency
from scripts.diagrams.server import architecture, batching, sequences

DIRECTORY = Path(__file__).parents[2] / "docs" / "diagrams"
DIAGRAMS = {
    "architecture.svg": architecture,
    "batching.svg": batching,
    "sequences.svg": sequences,
    "residency.svg": residency,
    "deployment.svg": deployment,
}


def main() -> int:
    """0, or 1 if a file is not what would be written."""
    files = {DIRECTORY / name: draw().svg() for name, draw in DIAGRAMS.items()}
    return generated.write(files, "python -m scripts.diagrams")


if __name__ == "__main__":
    sys.exit(main())
