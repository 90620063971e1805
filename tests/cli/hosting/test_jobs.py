"""`halimede jobs`, and `halimede logs --job`."""

import subprocess
from collections.abc import Iterator

import pytest

from halimede.hosting.substrates.processes import end_marked
from tests.hosting.transform.test_host import Host, host_in, write_program, write_rows
from tests.support.commands import call_text_command
from tests.support.names import new_name
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with a model that adds up the rows of three files."""
    place = tmp_path_factory.mktemp("jobs")
    write_program(place)
    write_rows(place, 3, 20)
    with host_in(place) as running:
        running.prepare(SECONDS="0.02")
        yield running
    end_marked(place / "host", 0.0)


def ask(host: Host, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return call_text_command(*arguments, environment={**host.process.environment, **variables})


def cells(printed: str) -> list[list[str]]:
    """The rows of a table, without its headings."""
    rows = [line for line in printed.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows[1:]]


def test_there_are_no_jobs(host: Host) -> None:
    shown = ask(host, "jobs", AWS_DEFAULT_REGION="eu-west-1")
    assert (shown.returncode, shown.stdout) == (0, "There are no transform jobs.\n")


def test_a_job_is_waited_for_and_shown(host: Host) -> None:
    name = new_name("adds")
    host.create(name)
    shown = ask(host, "jobs", name, "--wait")
    assert shown.returncode == 0, shown.stderr
    assert f"{name}: InProgress" in shown.stderr
    assert " of 3 objects, " in shown.stderr
    [row] = cells(shown.stdout)
    assert row[:6] == [name, "Completed", "3/3", "0", "60", "270 B"]
    events = shown.stdout.splitlines()[-3:]
    assert events[0] == f"s3://in/rows/ to s3://out/{name}, model adder, 1 x ml.local.cpu"
    assert events[1:] == [
        "MaxConcurrentTransforms=1, MaxPayloadInMB=6, BatchStrategy=SingleRecord: 3 objects",
        "Completed",
    ]


def test_a_job_that_has_failed_ends_the_command_with_an_error(host: Host) -> None:
    name = new_name("fails")
    host.create(name, Environment={"FAILS": "yes"})
    wait_until(lambda: ask(host, "jobs", name).returncode == 1, "the failure")
    shown = ask(host, "jobs")
    assert shown.returncode == 0
    rows = cells(shown.stdout)
    first = [row[0] for row in rows].index(name)  # of the latest job, whose reason goes on in further rows
    assert rows[first][1:4] == ["Failed", "0/3", "3"]
    assert "status 400: not a number" in " ".join(row[-1] for row in rows[first:])


def test_what_instances_print_is_shown(host: Host) -> None:
    name = new_name("prints")
    host.create(name)
    host.settled(name)
    shown = ask(host, "logs", name, "--job", "--instance", "i-")
    assert "'SAGEMAKER_BATCH': 'true'" in shown.stdout
    shown = ask(host, "logs", "other", "--job")
    assert (shown.returncode, shown.stderr) == (1, "halimede: there are no logs of transform job other\n")


def test_jobs_that_are_not_there(host: Host) -> None:
    shown = ask(host, "jobs", "other", "--wait")
    assert shown.returncode == 1
    assert shown.stderr.startswith('halimede: Could not find transform job "arn:aws:sagemaker:')
    shown = ask(host, "jobs", "--wait")
    assert (shown.returncode, shown.stderr) == (2, "halimede: --wait needs the NAME of a transform job\n")
