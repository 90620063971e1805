"""The list of models, page by page."""

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.core.errors import InvalidArgumentError
from halimede.engine.lifecycle.hosted_models import HostedModel
from halimede.frontends.sagemaker.paging import page


def hosted(*keys: str) -> list[HostedModel]:
    return [HostedModel(key, f"/opt/ml/models/{key}") for key in keys]


def names(document: dict[str, Any]) -> list[str]:
    return [model["modelName"] for model in document["models"]]


def test_without_a_query_all_models_are_listed() -> None:
    document = page(hosted(*(f"m{index:03}" for index in range(250))), "")
    assert len(document["models"]) == 250
    assert document["models"][7] == {"modelName": "m007", "modelUrl": "/opt/ml/models/m007"}
    assert "nextPageToken" not in document


def test_no_models_are_an_empty_list() -> None:
    assert page([], "limit=5") == {"models": []}


def test_a_full_last_page_has_no_token() -> None:
    assert page(hosted("a", "b"), "limit=2").keys() == {"models"}


@given(st.lists(st.text(min_size=1), unique=True), st.integers(1, 100))
def test_pages_together_are_all_models_once(keys: list[str], limit: int) -> None:
    models = hosted(*keys)
    found: list[str] = []
    document = page(models, f"limit={limit}")
    found += names(document)
    while "nextPageToken" in document:
        assert len(document["models"]) == limit
        document = page(models, f"next_page_token={document['nextPageToken']}&limit={limit}")
        found += names(document)
    assert found == sorted(keys)


def test_what_comes_and_goes_between_pages_moves_no_other() -> None:
    first = page(hosted("c", "a", "e", "g"), "limit=2")
    assert names(first) == ["a", "c"]
    rest = page(hosted("b", "e", "g", "f"), f"next_page_token={first['nextPageToken']}")
    assert names(rest) == ["e", "f", "g"]


@pytest.mark.parametrize("limit", ["0", "101", "-1", "", "ten", "1.5", "9" * 5000, "+5", "²", "5 "])
def test_a_wrong_limit_is_refused(limit: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        page(hosted("a"), f"limit={quote(limit)}")
    assert caught.value.message == f"limit '{limit[:64]}' is not a whole number from 1 to 100"


@pytest.mark.parametrize("token", ["!", "a", "ö", "_w"])
def test_a_token_of_ones_own_making_is_refused(token: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is not the nextPageToken of an earlier page"):
        page(hosted("a"), f"next_page_token={quote(token)}")
