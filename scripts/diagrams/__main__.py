"""Write the diagrams. `--check` only says whether they are fresh."""

import sys
from pathlib import Path

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
    stale = 0
    for name, draw in DIAGRAMS.items():
        path, text = DIRECTORY / name, draw().svg()
        if path.exists() and path.read_text() == text:
            continue
        if "--check" in sys.argv[1:]:
            sys.stderr.write(f"{path} is stale; run `python -m scripts.diagrams`\n")
            stale = 1
        else:
            path.write_text(text)
    return stale


if __name__ == "__main__":
    sys.exit(main())
