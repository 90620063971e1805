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

from tests.conformance.page import with_differences  # noqa: E402 - the tests are not installed
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
    stale = 0
    for path, document in PAGES.items():
        text = document()
        if path.exists() and path.read_text() == text:
            continue
        if "--check" in sys.argv[1:]:
            sys.stderr.write(f"{path} is stale; run `make docs`\n")
            stale = 1
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    return stale


if __name__ == "__main__":
    sys.exit(main())
