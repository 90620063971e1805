from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.core.errors import InvalidArgumentError
from halimede.frontends.restrictions import (
    GRPC_HEADER_PREFIX,
    Restriction,
    compile_forward_pattern,
    forwarded_headers,
    parse_restrictions,
    without_secret,
)


def test_restriction_names_categories_and_the_header_that_opens_them() -> None:
    restrictions = parse_restrictions(["health,metadata:Key=a=b", "inference:other=x"])
    assert restrictions == {
        "health": Restriction("key", "a=b", "Key"),
        "metadata": Restriction("key", "a=b", "Key"),
        "inference": Restriction("other", "x", "other"),
    }


def test_grpc_headers_have_a_prefix() -> None:
    restrictions = parse_restrictions(["trace:Key=v"], "protocol", GRPC_HEADER_PREFIX)
    assert restrictions["trace"] == Restriction("triton-grpc-protocol-key", "v", "triton-grpc-protocol-Key")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ["health:a=b", "metadata,health:c=d"],
            "restricted api 'health' can not be specified in multiple config groups",
        ),
        (["health,health:a=b"], "restricted api 'health' can not be specified in multiple config groups"),
        (
            ["health,x:a=b"],
            "^--http-restricted-api: unknown restricted api in place 2; known are health, metadata,",
        ),
        (["infer:a=b"], "unknown restricted api in place 1; the nearest is 'inference'; known are"),
        (["health"], r"^--http-restricted-api option format is .*\. What was given is not repeated here"),
        (["health:a"], "option format is"),
        ([":a=b"], "option format is"),
        (["health:=b"], "option format is"),
    ],
)
def test_wrong_restriction_is_refused(options: list[str], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        parse_restrictions(options)


def forwarded(pattern: str, *names: str) -> list[str]:
    compiled = compile_forward_pattern(pattern)
    assert compiled is not None
    return list(forwarded_headers([(name, "v") for name in names], compiled))


def test_pattern_finds_headers_anywhere_in_the_name_and_in_any_case() -> None:
    assert forwarded("FORWARD", "X-Forward-Me", "forward", "other") == ["X-Forward-Me", "forward"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("(?-i)MY_HEADER.*", ["MY_HEADER_1"]),
        ("(?-i)MY_HEADER.*|(?i)^other", ["MY_HEADER_1", "Other"]),
        ("(?-i:MY)_header", ["MY_HEADER_1"]),
        (r"\Qmy_header_\E\d\z", ["MY_HEADER_1", "my_header_2"]),
        ("[[:digit:]]$", ["MY_HEADER_1", "my_header_2"]),
    ],
)
def test_pattern_has_re2s_syntax(pattern: str, names: list[str]) -> None:
    assert forwarded(pattern, "MY_HEADER_1", "my_header_2", "Other") == names


def test_no_pattern_forwards_nothing() -> None:
    assert compile_forward_pattern("") is None


@pytest.mark.parametrize(
    ("pattern", "reason"), [("(a", "missing ): (a"), ("(?=a)", "invalid perl operator: (?="), (r"\1", r"\1")]
)
def test_wrong_pattern_is_refused(capfd: pytest.CaptureFixture[str], pattern: str, reason: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        compile_forward_pattern(pattern)
    text = f"header forward pattern '{pattern}' is not a regular expression of RE2: "
    assert caught.value.message.startswith(text)
    assert reason in caught.value.message
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["priority", "timeout", "Sequence_ID", "Triton_anything"])
def test_reserved_headers_are_not_forwarded(name: str) -> None:
    text = f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
    with pytest.raises(InvalidArgumentError, match=text):
        forwarded(".*", name)


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "option",
    [
        SECRET,
        f"key={SECRET}",
        f"inference:key:{SECRET}",
        f"inference:={SECRET}",
        f"inference=key={SECRET}",
        f"key={SECRET}:inference=x",
        f"{SECRET}:inference=x",
        f"infer:key={SECRET}",
        f":key={SECRET}",
    ],
)
@pytest.mark.parametrize("kind", ["api", "protocol"])
def test_a_malformed_secret_is_not_repeated(option: str, kind: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        parse_restrictions([option], kind)
    assert SECRET not in refused.value.message
    assert refused.value.message.startswith(("--http-restricted-api", "--grpc-restricted-protocol"))


def test_a_secret_comes_from_a_file_or_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    monkeypatch.setenv("MY_KEY", SECRET)
    restrictions = parse_restrictions([f"inference:key=file:{tmp_path}/key", "health:key=env:MY_KEY"])
    assert [restrictions[each].value for each in ("inference", "health")] == [SECRET, SECRET]


def test_a_secret_that_cannot_be_read_names_the_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    file = tmp_path / "key"
    for value, text in [
        (f"file:{file}", f"--http-restricted-api: cannot read the file '{file}': No such file or directory"),
        (f"file:{tmp_path}", f"--http-restricted-api: cannot read the file '{tmp_path}': Is a directory"),
        ("env:MY_KEY", "--http-restricted-api: the environment variable MY_KEY is not set or empty"),
    ]:
        with pytest.raises(InvalidArgumentError) as refused:
            parse_restrictions([f"inference:key={value}"])
        assert refused.value.message == text


@pytest.mark.parametrize("content", ["two\nlines", "schlüssel", "a\tb"])
def test_a_secret_that_no_header_can_hold_is_refused_and_not_repeated(tmp_path: Path, content: str) -> None:
    file = tmp_path / "key"
    file.write_text(content)
    with pytest.raises(InvalidArgumentError, match="one line of printable ASCII") as refused:
        parse_restrictions([f"inference:key=file:{file}"])
    assert content not in refused.value.message


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        (f"inference:key={SECRET}", "inference:key=***"),
        ("inference:key=file:/x", "inference:key=file:/x"),
        ("inference:key=env:X", "inference:key=env:X"),
        (SECRET, "***"),
    ],
)
def test_only_where_a_secret_comes_from_is_shown(option: str, shown: str) -> None:
    assert without_secret(option) == shown


@pytest.mark.parametrize(
    ("sent", "opens"), [("v", True), (b"v", True), ("w", False), ("", False), (None, False), ("ü", False)]
)
def test_only_the_right_value_opens(sent: str | bytes | None, opens: bool) -> None:
    assert Restriction("key", "v", "key").opened_by(sent) is opens


PARTS = st.sampled_from(
    ["health", "metadata", "inference", ",", ":", "=", " ", "key", "x-ä", "file:", "env:", "\n", "\0"]
)


@given(st.lists(st.lists(PARTS, max_size=8).map("".join) | st.text(max_size=20), max_size=3))
def test_any_restriction_is_read_or_refused(options: list[str]) -> None:
    try:
        restrictions = parse_restrictions(options)
    except InvalidArgumentError:
        return
    for restriction in restrictions.values():
        assert restriction.header == restriction.name.lower() != ""
        assert restriction.opened_by(restriction.value)
        assert not restriction.opened_by("")
