"""Links of the pages lead somewhere."""

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, README, anchors, links, name


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_each_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    broken = []
    for link in links(page):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_each_page_is_linked_from_another() -> None:
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in PAGES
        for link in links(page)
        if "://" not in link and not link.startswith("#")
    }
    assert set(PAGES) - {README} <= linked
