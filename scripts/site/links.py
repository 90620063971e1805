"""A check of a built site: links and anchors lead somewhere, and no page loads anything from elsewhere."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
_LINKS_ONLY = {"canonical", "next", "prev", "edit"}


class _Page(HTMLParser):
    """The anchors of a page, where it links to, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors = {""}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif values.get(_LOADED.get(tag, "")) and values.get("rel") not in _LINKS_ONLY:
            self.loaded.append(values[_LOADED[tag]])


def problems(site: Path) -> Iterator[str]:
    """What is wrong with the pages of the site, a line each."""
    pages = {path.resolve(): _Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        if path.name == "404.html":  # its links are those of the root of a server
            continue
        name = path.relative_to(site.resolve())
        for url in page.loaded:
            if urlsplit(url).scheme != "data" and not _target(path, url).exists():
                yield f"{name}: loads {url}, which is not part of the site"
        for url in page.links:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = _target(path, url)
            if not target.exists():
                yield f"{name}: links to {url}, which is not there"
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name}: links to {url}, but that page has no such anchor"


def _target(page: Path, url: str) -> Path:
    """The file that a URL of a page means; a file that does not exist if the URL leads elsewhere."""
    parts = urlsplit(url)
    if parts.scheme or parts.netloc:
        return Path("/nowhere")
    if not parts.path:
        return page
    target = (page.parent / unquote(parts.path)).resolve()
    return target / "index.html" if target.is_dir() else target
