"""Lists: filters, order and pages."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.hosting.control.listing import page_of
from halimede.hosting.errors import ApiError

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def _entry(name: str, minute: int = 0, status: str = "InService") -> dict[str, Any]:
    when = BEGAN + timedelta(minutes=minute)
    return {"EndpointName": name, "CreationTime": when, "LastModifiedTime": when, "EndpointStatus": status}


def _page(entries: list[dict[str, Any]], **request: Any) -> tuple[list[str], str | None]:
    page = page_of(entries, request, "EndpointName", "Endpoints", "EndpointStatus")
    return [entry["EndpointName"] for entry in page["Endpoints"]], page.get("NextToken")


THREE = [_entry("bb", 2, "Failed"), _entry("a", 3), _entry("Cb", 1)]


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        ({}, ["a", "bb", "Cb"]),
        ({"SortOrder": "Ascending"}, ["Cb", "bb", "a"]),
        ({"SortBy": "Name", "SortOrder": "Ascending"}, ["Cb", "a", "bb"]),
        ({"SortBy": "Status", "SortOrder": "Ascending"}, ["bb", "Cb", "a"]),
        ({"SortBy": "ScheduledTime"}, ["a", "bb", "Cb"]),
        ({"NameContains": "B"}, ["bb", "Cb"]),
        ({"StatusEquals": "Failed"}, ["bb"]),
        ({"CreationTimeAfter": BEGAN + timedelta(minutes=2)}, ["a", "bb"]),
        ({"CreationTimeBefore": BEGAN + timedelta(minutes=1)}, ["Cb"]),
        ({"LastModifiedTimeAfter": BEGAN + timedelta(minutes=3)}, ["a"]),
        ({"LastModifiedTimeBefore": BEGAN}, []),
        ({"CreationTimeAfter": datetime(2026, 1, 1, 1, 2, tzinfo=UTC).astimezone(None)}, []),
    ],
)
def test_a_list_is_filtered_and_sorted(request_: dict[str, Any], names: list[str]) -> None:
    assert _page(THREE, **request_) == (names, None)


def test_a_list_is_sorted_by_a_time_that_its_entries_have() -> None:
    times = {"a": 2, "bb": 1, "Cb": 3}
    entries = [
        {**each, "ScheduledTime": BEGAN + timedelta(hours=times[each["EndpointName"]])} for each in THREE
    ]
    assert _page(entries, SortBy="ScheduledTime") == (["Cb", "a", "bb"], None)
    assert _page(entries, SortBy="ScheduledTime", StatusEquals="none") == ([], None)


def test_a_page_has_ten_entries_unless_the_request_says() -> None:
    entries = [_entry(f"e{number:02}", number) for number in range(25)]
    names, token = _page(entries, SortOrder="Ascending")
    assert names == [f"e{number:02}" for number in range(10)]
    assert token
    assert len(_page(entries, MaxResults=25)[0]) == 25
    assert _page(entries, MaxResults=25)[1] is None


def test_what_was_deleted_between_two_pages_hides_nothing() -> None:
    entries = [_entry(f"e{number:02}", number) for number in range(25)]
    seen: list[str] = []
    token: str | None = ""
    while token is not None:
        names, token = _page(entries, **({"NextToken": token} if token else {}))
        seen += names
        entries = [entry for entry in entries if entry["EndpointName"] not in seen]
    assert len(seen) == 25


@given(
    names=st.lists(st.text("abAB-1", min_size=1, max_size=4), unique=True, max_size=30),
    minutes=st.lists(st.integers(0, 3), min_size=30, max_size=30),
    size=st.integers(1, 12),
    by=st.sampled_from(["Name", "CreationTime", "Status"]),
    order=st.sampled_from(["Ascending", "Descending"]),
)
def test_pages_together_are_the_whole_list(
    names: list[str], minutes: list[int], size: int, by: str, order: str
) -> None:
    entries = [_entry(name, minute) for name, minute in zip(names, minutes, strict=False)]
    request = {"SortBy": by, "SortOrder": order}
    pages: list[str] = []
    found, token = _page(entries, **request, MaxResults=size)
    while True:
        assert len(found) <= size
        pages += found
        if token is None:
            break
        found, token = _page(entries, **request, MaxResults=size, NextToken=token)
    assert pages == _page(entries, **request, MaxResults=100)[0]
    assert sorted(pages) == sorted(names)


@pytest.mark.parametrize("text", ["", "!", "ä", "10", "e30=", base64.b64encode(b"[1]").decode(), "bnVsbA=="])
def test_a_token_that_no_answer_had_is_refused(text: str) -> None:
    with pytest.raises(ApiError, match="NextToken") as raised:
        _page(THREE, NextToken=text)
    assert raised.value.code == "ValidationException"
