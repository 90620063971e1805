"""Build the site of all pages in `build/site`, and check its links."""

import os
import subprocess
import sys

from scripts.site.links import problems
from scripts.site.pages import ROOT, write_pages

SITE = ROOT / "build" / "site"


def main() -> int:
    """0, or 1 if a page or a link is wrong."""
    write_pages(ROOT / "build" / "site-pages")
    # Material notes at each build that MkDocs 2 will not be for it
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--clean"]
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:  # noqa: S603 - a command of our own
        return 1
    found = list(problems(SITE))
    sys.stderr.writelines(f"{line}\n" for line in found)
    if not found:
        sys.stdout.write(
            f"The site is in {SITE.relative_to(ROOT)}: open index.html, or serve the directory\n"
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
