"""Pages that are written to be read in the repository, as a generator of sites needs them.

Pages of the repository's root become pages of the site, links to other files lead to the source repository, and
Markdown that GitHub and Python-Markdown read differently is written so that both mean the same.
"""

import posixpath
import re
import shutil
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "CHANGELOG.md": "changelog.md",
}
SHIM = Path(__file__).parent / "iframe-worker"
"""What search needs where pages are opened as files, and browsers have no workers."""

_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
_CODE = re.compile(r"`[^`]*`")
_ITEM = re.compile(r"(?:[*-]|\d+\.) ")


def source_url() -> str:
    """The address of the repository's files, as the package's metadata gives it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return f"{project['urls']['Source']}/blob/main"


def site_link(path: str, directory: str) -> str:
    """Where a link to `path` in a page of `directory` (`docs` or `""`, the root) leads on the site.

    Raises:
        FileNotFoundError: the repository has no such file.
    """
    target = posixpath.normpath(posixpath.join(directory, path))
    if target in ROOT_PAGES:
        return ROOT_PAGES[target]
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if not (ROOT / target).exists():
        raise FileNotFoundError(f"{path}: the repository has no file {target}")
    return f"{source_url()}/{target}"


def site_markdown(text: str, directory: str) -> str:
    """A page of `directory` as Python-Markdown must get it to show what GitHub shows."""
    lines = []
    fenced = in_item = False
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        if fenced or fence:
            fenced ^= fence
            lines.append(line)
            continue
        if _ITEM.match(line):
            if lines and lines[-1].strip() and not in_item and not _ITEM.match(lines[-1]):
                lines.append("")  # else it would go on with the paragraph
            in_item = True
        elif line.strip() and not line.startswith(" "):
            in_item = False
        elif in_item and line.startswith("  "):
            line = "  " + line  # four spaces belong to an item
        if line.startswith("|"):
            line = _CODE.sub(lambda code: code[0].replace(r"\|", "|"), line)
        lines.append(_with_site_links(line, directory))
    return "\n".join(lines) + "\n"


def _with_site_links(line: str, directory: str) -> str:
    def replaced(link: re.Match[str]) -> str:
        if "://" in link[1]:
            return link[0]
        return site_link(link[1], directory) + (link[2] or "")

    parts = re.split(r"(`[^`]*`)", line)
    if all(part.startswith("`") or "](" not in part for part in parts):
        return line
    return _LINK.sub(replaced, line)


def write_pages(directory: Path) -> None:
    """Write all that the site is made of to `directory`, which is made anew."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(ROOT / "docs", directory)
    shutil.copytree(SHIM, directory / "assets" / SHIM.name)
    for page in directory.glob("*.md"):
        page.write_text(site_markdown(page.read_text(), "docs"))
    for source, name in ROOT_PAGES.items():
        (directory / name).write_text(site_markdown((ROOT / source).read_text(), ""))
