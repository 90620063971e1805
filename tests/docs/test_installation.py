"""How Halimede is installed is said in one place, and commands on other pages work as they are or lead there."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, name

PLACE = ROOT / "docs" / "getting-started.md"
_REQUIREMENT = re.compile(r"pip install[^\n`]*?([\"'])([^\"'\n]*halimede[^\"'\n]*|\.)\[([a-z,-]+)\]\1")
_FOR_DEVELOPERS = frozenset(
    {"bench", "examples", "docs-site", "mutation", "walkthroughs", "test-sdks", "test"}
)


def extras() -> dict[str, list[str]]:
    """Extra → its requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, list[str]] = project["optional-dependencies"]
    return found


def parts(page: Path) -> tuple[str, str]:
    """A page's prose, and its blocks of code."""
    text = page.read_text()
    blocks = "\n".join(re.findall(r"^```.*?^```", text, re.M | re.S))
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), blocks


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_extras_that_are_to_be_installed_exist(page: Path) -> None:
    for _, _, names in _REQUIREMENT.findall(page.read_text()):
        assert set(names.split(",")) <= extras().keys()


@pytest.mark.parametrize("page", [each for each in PAGES if each != PLACE], ids=name)
def test_commands_install_from_a_checkout_or_lead_to_the_installation(page: Path) -> None:
    """There is no package index to take it from; an installed Halimede can be given further extras."""
    prose, blocks = parts(page)
    for _, what, names in _REQUIREMENT.findall(blocks):
        assert what == "." or "/" in what, f"{what}[{names}] cannot be installed by its name"
    for found in _REQUIREMENT.finditer(prose):
        if found[2] != "halimede":
            continue
        line = prose[prose.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0]
        assert "getting-started.md#installed)" in line, line


def test_messages_name_extras_that_exist() -> None:
    named = {
        extra
        for file in (ROOT / "src").rglob("*.py")
        for extras_named in re.findall(r"pip install [\"']halimede\[([a-z,-]+)\]", file.read_text())
        for extra in extras_named.split(",")
    }
    assert "onnx" in named
    assert named <= extras().keys()


def test_the_place_lists_all_extras_for_users() -> None:
    table = re.findall(r"^\| `([a-z-]+)` \|", PLACE.read_text(), re.M)
    assert set(table) == extras().keys() - _FOR_DEVELOPERS


def test_what_the_extra_all_leaves_out_is_said() -> None:
    included = set(re.findall(r"[\w-]+", extras()["all"][0].partition("[")[2]))
    for extra in list(included):
        for requirement in extras()[extra]:
            included |= set(re.findall(r"[\w-]+", re.sub(r"^(?!halimede\[).*", "", requirement)))
    left_out = extras().keys() - _FOR_DEVELOPERS - included - {"all"}
    [row] = re.findall(r"^\| `all` \|(.*)\|$", PLACE.read_text(), re.M)
    assert set(re.findall(r"`([a-z-]+)`", row)) == left_out
