"""What stands for vLLM here is imported in its place, by tests and by the servers that they start."""

import sys
from pathlib import Path

STAND_IN = Path(__file__).parent / "stand_in"

sys.path.insert(0, str(STAND_IN))
