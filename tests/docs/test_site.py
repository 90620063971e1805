"""The site of all pages: every page is in its navigation, it is built, and nothing in it leads nowhere."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts.site.links import problems
from scripts.site.pages import ROOT_PAGES, site_markdown
from tests.docs.pages import ROOT

CONFIGURATION = (ROOT / "mkdocs.yml").read_text()


def test_each_page_is_in_the_navigation_once() -> None:
    listed = Counter(re.findall(r"^ +- (?:[^:#]+: )?([\w-]+\.md)$", CONFIGURATION, re.M))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} | set(ROOT_PAGES.values())
    assert listed == Counter(pages)


def test_site_is_built_and_its_links_lead_somewhere() -> None:
    built = subprocess.run(
        [sys.executable, "-m", "scripts.site"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (built.returncode, built.stderr) == (0, "")

    site = ROOT / "build" / "site"
    front = (site / "index.html").read_text()
    assert 'href="onnx.html"' in front
    assert "<title>Halimede</title>" in front
    assert "dynamic batching" in (site / "search" / "search_index.js").read_text()
    assert "Serve models until the process gets SIGINT or SIGTERM." in (site / "api.html").read_text()
    assert "https://halimede.example/halimede/blob/main/examples/sagemaker/Containerfile" in (
        (site / "sagemaker.html").read_text()
    )


def test_python_api_has_an_entry_for_each_public_name() -> None:
    public = (ROOT / "src" / "halimede" / "__init__.pyi").read_text()
    exported = {
        f"{module}.{name}" for module, name in re.findall(r"^from (\S+) import (\w+) as \2$", public, re.M)
    }
    entries = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.M)
    assert len(exported) > 5
    assert Counter(entries) == Counter(exported)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="gone.html">x</a>', "index.html: links to gone.html, which is not there"),
        (
            '<a href="other.html#no">x</a>',
            "index.html: links to other.html#no, but that page has no such anchor",
        ),
        ('<a href="#no">x</a>', "index.html: links to #no, but that page has no such anchor"),
        (
            '<script src="https://cdn.example/x.js"></script>',
            "index.html: loads https://cdn.example/x.js, which is not part of the site",
        ),
        ('<img src="gone.svg">', "index.html: loads gone.svg, which is not part of the site"),
        ('<link rel="stylesheet" href="x.css">', "index.html: loads x.css, which is not part of the site"),
    ],
)
def test_what_leads_nowhere_is_a_problem(tmp_path: Path, body: str, problem: str) -> None:
    (tmp_path / "other.html").write_text('<h1 id="yes">Other</h1><a href="index.html">back</a>')
    (tmp_path / "index.html").write_text('<a href="other.html#yes">x</a><a href="https://a.example">y</a>')
    assert list(problems(tmp_path)) == []
    (tmp_path / "index.html").write_text(body)
    assert list(problems(tmp_path)) == [problem]


def test_pages_mean_the_same_on_the_site() -> None:
    page = (
        "Text before a list:\n* [one](http.md#batching)\n  goes on\n* [two](../README.md#frameworks), `[x](y.md)`\n\n"
        "| Flag | |\n|---|---|\n| `none\\|poll` | [file](../examples/digits/model.py) |\n\n```\n* [no](link.md)\n```\n"
    )
    assert site_markdown(page.replace("digits/model.py", "build.py"), "docs") == (
        "Text before a list:\n\n* [one](http.md#batching)\n    goes on\n* [two](index.md#frameworks), `[x](y.md)`\n\n"
        "| Flag | |\n|---|---|\n| `none|poll` | [file](https://halimede.example/halimede/blob/main/examples/build.py) |"
        "\n\n```\n* [no](link.md)\n```\n"
    )


def test_link_to_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.py: the repository has no file examples/gone\.py"):
        site_markdown("[gone](../examples/gone.py)", "docs")
