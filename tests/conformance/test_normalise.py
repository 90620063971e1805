"""What is not compared."""

from pathlib import Path

import pytest

from tests.conformance.answers import Value
from tests.conformance.normalise import normalised

REPOSITORY = Path("/tmp/conformance-x/tritonserver/models")
PLACES = {"<repository>": REPOSITORY, "<repository b>": REPOSITORY.with_name("b")}


def one(path: str, value: Value) -> Value:
    """The value, normalised."""
    return normalised({path: value}, PLACES)[path]


def test_the_repository_has_one_name() -> None:
    assert one("body.error", f"no file {REPOSITORY}/m/1/model.py") == "no file <repository>/m/1/model.py"
    assert one("body.error", f"not {REPOSITORY.with_name('b')}::m") == "not <repository b>::m"


def test_directories_that_were_searched_have_one_name() -> None:
    text = "unable to find backend library 'a.so' for model 'm', searched:"
    assert one("body.error", f"{text} '/opt/m/1' '/opt/m' ;\n") == f"{text} <directories>;\n"


def test_ports_pointers_and_temporary_directories_have_one_name() -> None:
    assert one("body.error", "127.0.0.1:8000 is taken") == "<address>:<port> is taken"
    assert one("body.error", "<object at 0x7f0012345678>") == "<object at <pointer>>"
    assert one("body.error", "in /tmp/folderAbC123/1/model.py") == "in <temporary directory>/1/model.py"


@pytest.mark.parametrize(
    "path", ["body.model_stats[0].inference_stats.queue.ns", "response.model_stats[0].last_inference"]
)
def test_of_times_only_whether_they_are_0_is_compared(path: str) -> None:
    assert one(path, 123) == one(path, 4567)
    assert one(path, 0) == 0


def test_counts_are_compared() -> None:
    assert one("body.model_stats[0].inference_count", 3) == 3


def test_names_in_the_order_of_a_hash_table_are_sorted() -> None:
    text = "Got input(s) ['B','A'], but missing required input(s) ['D','C']."
    assert one("body.error", text) == "Got input(s) ['A','B'], but missing required input(s) ['C','D']."


def test_what_the_json_parser_says_is_not_compared() -> None:
    prefix = "failed to parse the request JSON buffer: "
    assert one("body.error", prefix + "Invalid value. at 3") == one(
        "body.error", prefix + "unexpected character"
    )


def test_an_untyped_error_is_like_json() -> None:
    assert one("header content-type", "text/plain") == "application/json"
    assert one("header content-type", "text/plain; charset=utf-8") == "text/plain; charset=utf-8"


def test_members_of_later_versions_and_ignored_paths_are_left_out() -> None:
    answer: dict[str, Value] = {
        "body.ensemble_scheduling.max_inflight_requests": 0,
        "body.version": "2.51.0",
        "status": 200,
    }
    assert normalised(answer, PLACES, (r"\.version$",)) == {"status": 200}
