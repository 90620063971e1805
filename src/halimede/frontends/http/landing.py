"""The page at `/`, for a person who has opened the server's address in a browser.

Programs get what they get of Triton there, 404: only a request that accepts HTML is answered with the page. It is made
with the first such request, since reading the package's metadata takes longer than all other routes together.
"""

from base64 import b64encode
from functools import cached_property
from hashlib import sha256
from typing import Final

from halimede.core.media_types import essence
from halimede.frontends.http.routes import Route
from halimede.frontends.http.transport.exchange import Exchange

_STYLE: Final = """
:root { color-scheme: light dark; --ground: #f4f6fa; --card: #fff; --text: #182033; --faint: #59647a; --line: #e3e8f0;
  --accent: #2f52cc; }
@media (prefers-color-scheme: dark) { :root { --ground: #0d111b; --card: #151b29; --text: #e6eaf4; --faint: #98a4bb;
  --line: #242d40; --accent: #8fa9ff; } }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { width: min(560px, calc(100vw - 48px)); padding: 32px 0; }
h1 { margin: 0; font-size: 30px; letter-spacing: -.02em; } main > p { color: var(--faint); margin: 4px 0 24px; }
ul { list-style: none; margin: 0; padding: 0; display: grid; gap: 10px; }
a { display: block; padding: 14px 18px; border: 1px solid var(--line); border-radius: 12px; background: var(--card);
  color: var(--text); text-decoration: none; } a:hover, a:focus-visible { border-color: var(--accent); }
b { display: block; color: var(--accent); } span { color: var(--faint); }
"""
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Vary", "Accept"),
)
_CONSOLE: Final = (
    "/console",
    "Console",
    "models, latencies, queues and the log, live, and a form to try each model",
)
_LINKS: Final = (
    ("/v2/models", "Models", "the models that are ready, as JSON"),
    ("/v2", "Server", "its name, version and the extensions of the protocol that it serves, as JSON"),
    ("/openapi.json", "Calls", "each call over HTTP, as an OpenAPI document"),
)


class Landing:
    """Answers for the page.

    Args:
        console: whether there is a console to link to.
    """

    def __init__(self, *, console: bool) -> None:
        self._console = console

    @cached_property
    def _page(self) -> bytes:
        links = [*([_CONSOLE] if self._console else []), *_LINKS]
        if docs := _documentation():
            links.append((docs, "Documentation", "how to serve, configure and measure models"))
        return _page(links).encode()

    def answer(self, exchange: Exchange, _route: Route) -> None:
        """Answer with the page, or with 404 for a program."""
        if "text/html" in map(essence, exchange.headers.get("accept", "").split(",")):
            exchange.respond(200, (self._page,), "text/html; charset=utf-8", _HEADERS)
        else:
            exchange.route = ""
            exchange.respond(404, (b'{"error":"Not Found"}',))


def _documentation() -> str:
    """Where the documentation is, as the package says; "" if it does not."""
    from importlib.metadata import metadata

    for each in metadata("halimede").get_all("Project-URL") or ():
        name, _, url = each.partition(", ")
        if name == "Documentation":
            return str(url)
    return ""


def _page(links: list[tuple[str, str, str]]) -> str:
    items = "\n".join(
        f'<li><a href="{path}"><b>{name}</b><span>{what}</span></a></li>' for path, name, what in links
    )
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Halimede</title><style>{_STYLE}</style></head>
<body><main>
<h1>Halimede</h1>
<p>This server runs machine-learning models, over KServe v2 and Triton's protocols.</p>
<nav aria-label="Pages"><ul>
{items}
</ul></nav>
</main></body>
</html>
"""
