"""What comes of a case, and what the run says of it."""

import pytest

from benchmarks import rival
from tests.conformance.__main__ import main
from tests.conformance.case import Case, case
from tests.conformance.cases import every_case
from tests.conformance.compare import ABSENT, Line
from tests.conformance.differences import CLIENT_MISTAKE, Difference
from tests.conformance.report import failed, summary, told, vanished
from tests.conformance.run import Outcome, Verdict, judged

TEXT = Line("body.error", "theirs", "ours")
MEANT = Difference("It is better so.", paths="error$")


def outcome(one: Case, *lines: Line, subject: str = "module") -> Outcome:
    """What comes of it with those differences."""
    return judged(subject, one, lines)


def test_a_case_without_differences_is_alike() -> None:
    assert outcome(case("x")).verdict is Verdict.ALIKE


def test_a_difference_fails_the_run() -> None:
    found = outcome(case("x"), TEXT)
    assert found.verdict is Verdict.DIFFERENT
    assert failed([found]) == [found]


def test_a_deliberate_difference_passes() -> None:
    found = outcome(case("x", differs=MEANT), TEXT)
    assert found.verdict is Verdict.DELIBERATE
    assert failed([found]) == []


def test_a_deliberate_difference_explains_only_its_paths() -> None:
    other = Line("status", 200, 400)
    found = outcome(case("x", differs=MEANT), TEXT, other)
    assert (found.verdict, found.lines) == (Verdict.DIFFERENT, (other,))


def test_a_deliberate_difference_that_has_vanished_fails_the_run() -> None:
    found = outcome(case("x", differs=MEANT))
    assert found.verdict is Verdict.VANISHED
    assert failed([found]) == [found]
    assert "no longer differs: remove" in told(found)


def test_a_mistake_of_the_client_may_be_400_where_the_original_says_500() -> None:
    assert outcome(case("x"), Line("status", 500, 400), subject="http_errors").verdict is Verdict.DELIBERATE
    assert outcome(case("x"), Line("status", 400, 500), subject="http_errors").verdict is Verdict.DIFFERENT
    assert outcome(case("x"), Line("status", 500, 400), subject="python_models").verdict is Verdict.DIFFERENT


def test_a_difference_is_told_with_both_values_in_lines_that_fit_a_terminal() -> None:
    text = told(outcome(case("x"), Line("body.error", "word " * 50, "a\nb"), Line("body.y", ABSENT, 3)))
    assert "module: x\n  body.error\n  - word word" in text
    assert "\n  + a⏎b\n  + only here: body.y: 3" in text
    assert max(map(len, text.splitlines())) <= 112


def test_the_summary_counts_the_cases_of_each_kind() -> None:
    outcomes = [outcome(case("a")), outcome(case("b"), TEXT), outcome(case("c", differs=MEANT), TEXT)]
    assert summary(outcomes) == "3 cases: 1 alike, 1 deliberately different, 1 different"


def test_a_difference_that_no_case_shows_any_more_is_named() -> None:
    shown = outcome(case("x"), Line("status", 500, 400), subject="http_errors")
    assert CLIENT_MISTAKE not in vanished([shown])
    assert CLIENT_MISTAKE in vanished([outcome(case("x"))])


def test_without_tritonserver_the_run_says_so_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def environment() -> dict[str, str]:
        raise rival.UnavailableError("pip download failed: no matching distribution")

    monkeypatch.setattr(rival, "environment", environment)
    monkeypatch.setattr("sys.argv", ["conformance"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = "Nothing was compared: there is no tritonserver 2.51 here: pip download failed: no matching distribution\n"
    assert capsys.readouterr().err == said


def test_each_case_has_a_name_of_its_own() -> None:
    names = [f"{subject}: {one.name}" for subject, one in every_case()]
    assert sorted(set(names)) == sorted(names)
    assert len(names) > 400


def test_each_deliberate_difference_says_why_in_a_sentence() -> None:
    for _, one in every_case():
        if one.differs:
            assert one.differs.reason[0].isupper()
            assert one.differs.reason.endswith(".")
