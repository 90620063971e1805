"""The diagrams are what their scripts draw, load nothing, and are shown on a page."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from scripts.diagrams.__main__ import DIAGRAMS, DIRECTORY
from tests.docs.pages import PAGES, links

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", DIAGRAMS)
def test_diagram_is_fresh_and_says_what_it_shows(name: str) -> None:
    text = (DIRECTORY / name).read_text()
    assert text == DIAGRAMS[name]().svg()
    picture = ET.fromstring(text)
    assert all(picture.findtext(SVG + part) for part in ("title", "desc"))
    assert "prefers-color-scheme: dark" in (picture.findtext(SVG + "style") or "")


@pytest.mark.parametrize("name", DIAGRAMS)
def test_what_is_drawn_lies_within_the_picture(name: str) -> None:
    picture = ET.fromstring((DIRECTORY / name).read_text())
    width, height = (float(each) for each in picture.attrib["viewBox"].split()[2:])
    for box in picture.iter(SVG + "rect"):
        if "x" in box.attrib:
            assert float(box.attrib["x"]) + float(box.attrib["width"]) <= width
            assert float(box.attrib["y"]) + float(box.attrib["height"]) <= height


def test_each_diagram_is_on_a_page() -> None:
    shown = {Path(link).name for page in PAGES for link in links(page) if link.startswith("diagrams/")}
    assert shown == set(DIAGRAMS) == {path.name for path in DIRECTORY.iterdir()}
