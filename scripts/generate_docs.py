"""Generate the reference pages of `docs/` from the tables in the code; `--check` only says whether they are fresh."""

import sys
from pathlib import Path

from halimede.cli.flags import flags_document
from halimede.cli.sagemaker_environment import environment_document

_DOCS = Path(__file__).parent.parent / "docs"
PAGES = {_DOCS / "flags.md": flags_document, _DOCS / "sagemaker-environment.md": environment_document}


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
