import logging
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.frontends.tokens import (
    DEFAULT_GROUPS,
    GROUPS,
    MISSING,
    WRONG,
    TokenFileError,
    Tokens,
    new_token,
    parse_groups,
    parse_tokens,
    token_line,
)

TOKEN = "YkbtKuRxcwlhc0ZuClQ0pDWzXvsT5qNqTVGRTrK7sVs"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"# who may call\n\n{token_line('ci', TOKEN)}\n")
    return path


def test_tokens_are_long_and_differ() -> None:
    assert len({new_token() for _ in range(100)}) == 100
    assert len(new_token()) == 43


def test_a_line_holds_the_hash_alone() -> None:
    assert token_line("ci", "abc") == (
        "ci:sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


def test_a_token_of_the_file_opens_every_group(file: Path) -> None:
    tokens = Tokens(file)
    for group in (*GROUPS, ""):
        assert tokens.refusal(group, f"Bearer {TOKEN}") == ""


@pytest.mark.parametrize("authorization", [f"bearer {TOKEN}", f"BEARER  {TOKEN} "])
def test_the_scheme_may_be_written_in_any_case(file: Path, authorization: str) -> None:
    assert Tokens(file).refusal("inference", authorization) == ""


@pytest.mark.parametrize("authorization", [None, "", "Bearer", TOKEN, "Basic YTpi", f"Basic {TOKEN}"])
def test_without_a_token_only_health_is_open(file: Path, authorization: str | None) -> None:
    tokens = Tokens(file)
    assert tokens.refusal("health", authorization) == ""
    for group in (*DEFAULT_GROUPS, ""):
        assert tokens.refusal(group, authorization) == (WRONG if authorization == "Bearer" else MISSING)


@pytest.mark.parametrize(
    "authorization",
    ["Bearer ", "Bearer x", f"Bearer {TOKEN}x", f"Bearer {TOKEN}, Bearer {TOKEN}", "Bearer ü\udcff"],
)
def test_another_token_opens_nothing(file: Path, authorization: str) -> None:
    assert Tokens(file).refusal("inference", authorization) == WRONG


def test_the_hash_is_no_token(file: Path) -> None:
    stored = token_line("ci", TOKEN).rpartition(":")[2]
    assert Tokens(file).refusal("inference", f"Bearer {stored}") == WRONG


def test_groups_that_need_a_token_are_chosen(file: Path) -> None:
    tokens = Tokens(file, parse_groups("model-repository, health"))
    assert tokens.refusal("inference", None) == ""
    assert tokens.refusal("health", None) == MISSING
    assert tokens.refusal("model-repository", None) == MISSING


def test_a_group_that_there_is_not_is_refused() -> None:
    with pytest.raises(
        ValueError, match="'infer' is no group of calls; known are health, metadata, inference,"
    ):
        parse_groups("health,infer")


@pytest.mark.parametrize(
    "line",
    [
        TOKEN,
        f"ci:{TOKEN}",
        "ci:sha256:abc",
        "ci:sha1:" + "a" * 64,
        ":sha256:" + "a" * 64,
        "c i:sha256:" + "a" * 64,
    ],
)
def test_a_malformed_line_is_told_by_its_number_and_not_repeated(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"{token_line('ci', TOKEN)}\n{line}\n")
    with pytest.raises(TokenFileError) as refused:
        Tokens(path)
    assert str(refused.value) == (
        f"'{path}', line 2 is not NAME:sha256:HASH; make one with: halimede token NAME"
    )


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenFileError, match=r"cannot read '.*tokens': No such file or directory"):
        Tokens(tmp_path / "tokens")


def test_a_file_without_tokens_lets_nobody_in_and_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens"
    path.write_text("# nobody yet\n")
    assert Tokens(path).refusal("inference", f"Bearer {TOKEN}") == WRONG
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "holds no token: calls that need one are all refused" in record.getMessage()


@given(st.text())
def test_any_text_is_tokens_or_refused(text: str) -> None:
    with suppress(TokenFileError):
        assert all(len(digest) == 32 and name for digest, name in parse_tokens(text).items())


@given(st.lists(st.tuples(st.from_regex(r"[^:\s#][^:\s]*", fullmatch=True), st.text()), max_size=5))
def test_lines_that_were_made_are_read_back(made: list[tuple[str, str]]) -> None:
    names = parse_tokens("\n".join(token_line(name, token) for name, token in made))
    assert set(names.values()) <= {name for name, _ in made}
    assert len(names) == len({token.encode("utf-8", "replace") for _, token in made})


def test_no_header_opens_by_chance(file: Path) -> None:
    tokens = Tokens(file)

    @given(st.text())
    def refused(authorization: str) -> None:
        assert tokens.refusal("inference", authorization) in (MISSING, WRONG)

    refused()
