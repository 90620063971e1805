"""What the pages say that there is, and is not, held against what there is."""

import re
import tomllib
from pathlib import Path

import pytest

from halimede.backends.registry import BACKENDS
from tests.docs.pages import PAGES, README, ROOT, links, name, prose, section

REPOSITORY_PAGE = ROOT / "docs/model-repository.md"
GETTING_STARTED = ROOT / "docs/getting-started.md"
FOR_TESTS = {"dyna_sequence", "identity", "implicit_state", "repeat", "sequence", "square"}
FOR_DEVELOPERS = {"mutation", "bench", "docs-site", "examples", "test", "test-sdks", "walkthroughs"}
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def backend_rows() -> dict[str, str]:
    """The table of backends: name → what it is."""
    table = section(REPOSITORY_PAGE, "Configuration").partition("| backend |")[2]
    rows = re.findall(r"^\| (`.*?) \|.*\| (.*?) \|$", table, re.M)
    return {backend: what for names, what in rows for backend in re.findall(r"`(\w+)`", names)}


def extras_rows() -> set[str]:
    """The table of extras."""
    return set(re.findall(r"^\| `([\w-]+)` \|", section(GETTING_STARTED, "Installed"), re.M))


def test_table_of_backends_is_the_registry() -> None:
    assert set(backend_rows()) == set(BACKENDS)


@pytest.mark.parametrize("backend", sorted(set(BACKENDS) - FOR_TESTS))
def test_each_backend_has_a_page_that_readers_find(backend: str) -> None:
    [page] = re.findall(r"\]\(([\w-]+\.md)\)", backend_rows()[backend])
    assert (ROOT / "docs" / page).is_file()
    assert page in links(GETTING_STARTED)
    assert f"docs/{page}" in links(README)


def test_extras_on_the_page_are_those_of_the_package() -> None:
    assert extras_rows() == EXTRAS - FOR_DEVELOPERS


@pytest.mark.parametrize("path", [*PAGES, *SOURCES], ids=name)
def test_installation_names_extras_that_exist(path: Path) -> None:
    named = re.findall(r"(?:halimede|['\"]\.)\[([\w,-]+)\]", path.read_text())
    assert {extra for group in named for extra in group.split(",")} <= EXTRAS


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_page_says_that_a_backend_is_missing_which_is_there(page: Path) -> None:
    titles = {title for what in backend_rows().values() for title in re.findall(r"\[(\w+)", what)}
    known = {word.lower() for word in (*titles, *BACKENDS)} - FOR_TESTS
    text = prose(page)
    missing = [
        *re.findall(r"\b[Nn]o (\w+) backend\b", text),
        *re.findall(r"(\w+) is not (?:supported|available)(?: yet)?\.", text),
        *re.findall(r"\w+", section(page, "Not yet")),
        *re.findall(r"\w+", section(page, "Not in this version")),
        *re.findall(r"\w+", " ".join(re.findall(r"\bNot yet: ([^.]*)\.", text))),
    ]
    assert {word.lower() for word in missing} & (known | {"frameworks"}) == set()
