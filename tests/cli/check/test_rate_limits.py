import click
import pytest

from halimede.cli.check.checks import check
from halimede.cli.check.rate_limits import resource_limits, resource_remarks
from halimede.cli.process import engine_settings
from halimede.engine.settings import ResourceLimit
from tests.cli.test_flags import parse, refusal


def test_resources_are_given_for_one_device_or_each() -> None:
    assert resource_limits(["R:4", "R:2:1", "G:0", "D:3:-1"]) == (
        ResourceLimit("R", 4),
        ResourceLimit("R", 2, 1),
        ResourceLimit("G", 0),
        ResourceLimit("D", 3),
    )


@pytest.mark.parametrize("entry", ["R", "", ":1", "R:1:2:3"])
def test_an_entry_of_another_form_is_refused_in_tritonservers_words(entry: str) -> None:
    options, _ = parse("--model-repository=/", f"--rate-limit-resource={entry}")
    with pytest.raises(click.UsageError) as error:
        check(options)
    assert error.value.message == (
        "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or '<resource_name>:<count>'. "
        f"Got {entry}"
    )


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("R:", "the count: '' is not a whole number"),
        ("R:x", "the count: 'x' is not a whole number"),
        ("R:-1", "the count: -1 is out of range; it must be at least 0"),
        ("R:1:x", "the device: 'x' is not a whole number"),
        ("R:1:global", "the device: 'global' is not a whole number"),
        ("R:1:-5", "the device: -5 is no device; leave it out for the same count on each"),
    ],
)
def test_a_number_that_is_none_is_refused(entry: str, why: str) -> None:
    with pytest.raises(click.UsageError) as error:
        resource_limits([entry])
    assert error.value.message == f"--rate-limit-resource={entry}: {why}"


def test_another_kind_of_limiter_is_refused() -> None:
    assert refusal("--rate-limit=foo") == "--rate-limit: 'foo' is not one of 'off', 'execution_count'"


@pytest.mark.parametrize(
    ("flags", "limits", "remarks"),
    [
        ([], False, 0),
        (["--rate-limit=off"], False, 0),
        (["--rate-limit", "execution_count", "--rate-limit-resource", "R:1"], True, 0),
        (["--rate-limit-resource=R:1"], False, 1),
    ],
)
def test_the_limiter_is_off_unless_it_is_asked_for(flags: list[str], limits: bool, remarks: int) -> None:
    options, _ = parse("--model-repository=/", *flags)
    assert engine_settings(options).rate_limit is limits
    assert len(resource_remarks(options)) == remarks
