import json
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.core.errors import InvalidArgumentError
from halimede.repository.cloud.credentials import VARIABLE, credentials_for
from halimede.repository.cloud.locations import Location, parse_location

FILE: dict[str, Any] = {
    "s3": {
        "": {"key_id": "any", "secret_key": "s"},
        "s3://bucket": {"key_id": "bucket", "secret_key": "s", "region": "eu-west-1"},
        "s3://bucket/deep": {"key_id": "deep", "secret_key": "s", "session_token": "t", "unknown": "x"},
        "s3://http://127.0.0.1:9000/": {"profile": "local"},
    },
    "gs": {"": "/keys/any.json", "gs://bucket": "/keys/bucket.json"},
    "as": {"": {"account_str": "account", "account_key": "key"}},
}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://other/a", {"key_id": "any", "secret_key": "s"}),
        ("s3://bucket/a", {"key_id": "bucket", "secret_key": "s", "region": "eu-west-1"}),
        ("s3://bucket/deep/a", {"key_id": "deep", "secret_key": "s", "session_token": "t"}),
        ("s3://http://127.0.0.1:9000/bucket", {"profile": "local"}),
        ("gs://other", {"path": "/keys/any.json"}),
        ("gs://bucket/a", {"path": "/keys/bucket.json"}),
        ("as://account/container", {"account_str": "account", "account_key": "key"}),
    ],
)
def test_the_longest_beginning_of_the_url_wins(url: str, expected: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "credentials.json").write_text(json.dumps(FILE))
    environment = {VARIABLE: str(tmp_path / "credentials.json")}
    assert credentials_for(parse_location(url), environment) == expected


def test_without_the_file_or_an_entry_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("{}")
    location = parse_location("s3://bucket")
    assert credentials_for(location, {}) == {}
    assert credentials_for(location, {VARIABLE: str(tmp_path / "empty.json")}) == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("no json: hidden", "is not JSON"),
        ('["hidden"]', 'must hold an object like {"s3": {"URL PREFIX": '),
        ('{"s3": "hidden"}', 'must hold an object like {"s3": {"URL PREFIX": '),
        ('{"s3": {"": "hidden"}}', "the entry '' of 's3' must be an object of texts: key_id, secret_key"),
        ('{"s3": {"": {"key_id": ["hidden"]}}}', "the entry '' of 's3' must be an object of texts"),
    ],
)
def test_a_malformed_file_is_refused_without_repeating_secrets(
    text: str, complaint: str, tmp_path: Path
) -> None:
    file = tmp_path / "credentials.json"
    file.write_text(text)
    with pytest.raises(InvalidArgumentError) as caught:
        credentials_for(parse_location("s3://bucket"), {VARIABLE: str(file)})
    assert str(file) in str(caught.value)
    assert complaint in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match=f"{VARIABLE}: '/nowhere' cannot be read"):
        credentials_for(parse_location("gs://bucket"), {VARIABLE: "/nowhere"})


LOCATIONS = [parse_location(url) for url in ("s3://bucket/a", "gs://bucket/a", "as://account/container/a")]
WORDS = st.sampled_from(
    ["", "s3", "gs", "as", "s3://", "s3://bucket", "gs://bucket/a", "as://account/", "key_id", "secret_key"]
)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=4),
)


@given(DOCUMENTS.map(json.dumps).map(str.encode) | st.binary(), st.sampled_from(LOCATIONS))
def test_any_file_holds_texts_or_is_refused(content: bytes, location: Location) -> None:
    with NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        try:
            found = credentials_for(location, {VARIABLE: file.name})
        except InvalidArgumentError:
            return
    assert all(isinstance(value, str) and value for value in found.values())
