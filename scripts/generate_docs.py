"""Generate the reference pages of `docs/`, its list of differences from tritonserver, and the README's support table.

Their sources are tables in the code. `--check` only says whether they are fresh.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from halimede.cli.flags import flags_document
from halimede.cli.sagemaker.environment import environment_document

_ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(_ROOT))  # some packages install tests too

from scripts import generated  # noqa: E402 - neither scripts nor tests are installed
from tests.conformance.page import with_differences  # noqa: E402
from tests.frameworks.matrix.table import with_table  # noqa: E402

_CONFORMANCE = _ROOT / "docs" / "conformance.md"
_README = _ROOT / "README.md"
PAGES: dict[Path, Callable[[], str]] = {
    _ROOT / "docs" / "flags.md": flags_document,
    _ROOT / "docs" / "sagemaker-environment.md": environment_document,
    _CONFORMANCE: lambda: with_differences(_CONFORMANCE.read_text()),
    _README: lambda: with_table(_README.read_text()),
}


def main() -> int:
    """0, or 1 if a page is not what would be generated."""
    return generated.write({path: document() for path, document in PAGES.items()}, "make docs")


if __name__ == "__main__":
    sys.exit(main())
