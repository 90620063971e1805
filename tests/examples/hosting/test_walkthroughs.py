"""The walk-throughs of SageMaker, against a fresh host that they find by AWS_ENDPOINT_URL alone.

CloudWatch counts by the minute; a minute of this host takes a second.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.host import HostProcess, start_host
from tests.support.walkthroughs import blocks

AUTOSCALING = "autoscaling"
ASYNCHRONOUS = "async_inference"
NAMES = ("single_model", "multi_model", "ab_test", "shadow", AUTOSCALING, ASYNCHRONOUS)
CANARY = "canary"
CAPTURING = ("data_capture", "monitoring")
SHORT = ("pipeline", "sessions", "text_stream")
"""Those that wait for nothing."""

FLAGS = ("--metric-period=1", "--oversubscription=32")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def built(hosting: Path) -> Path:
    """What `make host` builds."""
    return hosting


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the host keeps everything."""
    return tmp_path_factory.mktemp("host") / "host"


@pytest.fixture(scope="module")
def host(directory: Path) -> Iterator[HostProcess]:
    """A fresh host."""
    with start_host(directory, *FLAGS) as running:
        yield running


Processes = dict[str, "subprocess.Popen[str]"]


@contextmanager
def walking(host: HostProcess, built: Path, *commands: tuple[str, ...]) -> Iterator[Processes]:
    """Walk-throughs, all at once, by their names: they wait most of the time."""
    running = {
        name: subprocess.Popen(
            [sys.executable, "-m", f"examples.hosting.{name}", str(built), *arguments],
            env=dict(host.environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for name, *arguments in commands
    }  # fmt: skip
    yield running
    for process in running.values():
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def started(host: HostProcess, built: Path) -> Iterator[Processes]:
    """The walk-throughs of endpoints that wait for something."""
    with walking(host, built, *((name,) for name in NAMES), (CANARY, "5")) as running:
        yield running


@pytest.fixture(scope="module")
def capturing(tmp_path_factory: pytest.TempPathFactory, built: Path) -> Iterator[Processes]:
    """The walk-throughs of data capture, on a host whose hours are not shorter than others'."""
    with (
        start_host(tmp_path_factory.mktemp("capturing") / "host", "--capture-file-seconds=1") as host,
        walking(host, built, *((name,) for name in CAPTURING)) as running,
    ):
        yield running


def printed(process: "subprocess.Popen[str]") -> list[str]:
    """The lines that a walk-through has printed when it has ended well."""
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    return output.splitlines()


def test_ensemble_on_an_endpoint_of_its_own(started: Processes) -> None:
    first, *rest = printed(started["single_model"])
    assert re.fullmatch(r"read-digit-[-\d]+: InService", first)
    assert rest == ["as JSON: seven", "as bytes: seven", "deleted"]


def test_wrong_answer_ends_a_walk_through_with_an_error(built: Path, tmp_path: Path) -> None:
    directory = tmp_path / "other"
    directory.mkdir()
    (directory / "archives").symlink_to(built / "archives")
    (directory / "digit.json").write_text((built / "digit.json").read_text())
    (directory / "digit.bin").write_bytes(bytes(64))  # no ink at all

    with start_host(tmp_path / "host") as other:
        done = subprocess.run(
            [sys.executable, "-m", "examples.hosting.single_model", str(directory)],
            env=dict(other.environment), capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr == "wrong answer: the picture shows a seven\n"


def test_models_of_several_frameworks_on_one_endpoint(started: Processes) -> None:
    first, *rounds, loaded, hits, last = printed(started["multi_model"])
    assert re.fullmatch(r"many-models-[-\d]+: InService", first)
    assert len(rounds) == 5
    for line in rounds:
        assert "add_sub.tar.gz, read_digit.tar.gz: 7, [1.5, 2.0, 4.0, 6.0], seven (" in line
    assert (loaded, hits, last) == ("LoadedModelCount: 3", "ModelCacheHit: 12 of 15", "deleted")


def test_two_variants_of_which_the_better_one_wins(started: Processes) -> None:
    first, by_weight, right, second, counts, last = printed(started["ab_test"])
    assert first.endswith(": InService; weights: current 3, candidate 1")
    assert by_weight.startswith("by weight: current 1")
    assert right.startswith("right of 200: current 19")
    assert second.endswith(": InService; weights: current 1, candidate 0")
    current, candidate = map(int, re.findall(r"\d+", counts))
    assert counts == f"CloudWatch: current {current}, candidate {candidate}"
    assert (current + candidate, last) == (800, "deleted")


def test_what_was_asked_and_answered_is_captured(capturing: Processes) -> None:
    shown = "\n".join(printed(capturing["data_capture"]))
    page = Path("docs/capture.md").read_text()
    stamp = re.compile(r"\d{4}(-\d\d){5}")
    assert stamp.sub("then", shown) in stamp.sub("then", page)


def test_a_classifier_that_is_tried_on_anothers_traffic(started: Processes) -> None:
    lines = printed(started["shadow"])
    first, counts, current, candidate, quarter = lines[:5]
    assert first.endswith(": InService; shadow variant: candidate, weight 1")
    assert counts == "invocations: current 200, candidate 200"
    for variant, line in (("current", current), ("candidate", candidate)):
        assert re.fullmatch(rf"latency of {variant}: p50 [\d.]+ ms, p99 [\d.]+ ms", line)
    assert quarter == "with a weight of 0.25, about one request in four is copied"
    running, same, stopping, completed, promoted, last = lines[-6:]
    assert running.endswith(": Running")
    assert re.fullmatch(r"pictures in which both see the same digit: 7\d%", same)
    assert stopping.endswith(": Stopping")
    assert completed.endswith(": Completed")
    assert promoted.endswith(": candidate answers")
    assert last == "deleted"


def test_pictures_that_have_changed_are_noticed(capturing: Processes, built: Path) -> None:
    found = "\n".join(printed(capturing["monitoring"]))

    def outline(text: str) -> list[str]:
        """What does not depend on the last digit."""
        lines = re.sub(r"\d{4}(-\d\d){5}", "then", text).splitlines()
        return sorted(line.partition("_check: ")[0] for line in lines)

    [shown] = [text for text in blocks("drift.md", "text") if "execution" in text]
    assert outline(found) == outline(shown)
    assert "13 of 13 columns have changed" in (built / "drift-report.html").read_text()


def walk(host: HostProcess, name: str, built: Path) -> list[str]:
    """The lines that a walk-through prints."""
    done = subprocess.run(
        [sys.executable, "-m", f"examples.hosting.{name}", str(built)],
        env=dict(host.environment), capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [re.sub(r"-\d{4}(-\d\d){5}", "-WHEN", line) for line in done.stdout.splitlines()]


def shown(page: str) -> list[list[str]]:
    """What a page says that programs print, without times."""
    return [
        re.sub(r"-\d{4}(-\d\d){5}", "-WHEN", block).splitlines() for block in blocks(f"{page}.md", "text")
    ]


def test_containers_in_a_row_and_side_by_side(host: HostProcess, built: Path) -> None:
    assert walk(host, "pipeline", built) in shown("pipelines")


def test_text_that_is_streamed(host: HostProcess, built: Path) -> None:
    assert walk(host, "text_stream", built) in shown("hosting-language-models")


def test_sessions_that_stay_at_their_instances(host: HostProcess, built: Path) -> None:
    first, second, *others, refusal, last = walk(host, "sessions", built)
    assert (first, last) == ("running-mean-WHEN: InService", "deleted")
    assert re.fullmatch(r"6 sessions, the last one until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", second)
    [page] = [block for block in shown("sessions") if block[0] == first]
    assert others == page[2:-2]
    ids = re.compile(r"Session \w{44}i-\w{16}-[-\w]{36} ")
    assert ids.sub("Session ID ", refusal) == ids.sub("Session ID ", page[-2])


def test_a_variant_that_follows_its_load(started: Processes) -> None:
    first, alarms, *counts_and_activities, last = printed(started[AUTOSCALING])
    assert re.fullmatch(r"scaled-[-\d]+: InService", first)
    counts = [int(line.split()[1]) for line in counts_and_activities if line.startswith("instances: ")]
    activities = counts_and_activities[len(counts) :]
    assert (alarms, last) == ("alarms: 2", "deleted")
    assert (counts[0], max(counts), counts[-1]) == (1, 3, 1)
    highest = counts.index(3)
    assert counts == sorted(counts[: highest + 1]) + sorted(counts[highest + 1 :], reverse=True)
    assert "Successful: Setting desired instance count to 3. (AlarmHigh)" in activities
    assert activities[-1] == "Successful: Setting desired instance count to 1. (AlarmLow)"


def test_requests_that_wait_in_a_queue(started: Processes, directory: Path) -> None:
    first, *rest = printed(started[ASYNCHRONOUS])
    assert re.fullmatch(r"async-[-\d]+: InService", first)
    assert rest == [
        "19 of 20 results are right",
        "instances: 0, InService",
        "accepted without an instance: 202",
        "a 7",
        "Setting desired instance count to 0. policy backlog",
        "Setting desired instance count to 1. policy from-zero",
        "deleted",
    ]
    [log] = (directory / "notifications").glob("*/*/*.log")
    assert len(log.read_text().splitlines()) == 21


def test_a_canary_that_an_alarm_rolls_back_and_one_that_comes_about(started: Processes) -> None:
    output = "\n".join([*printed(started[CANARY]), ""])
    text = re.sub(r"-\d{4}(-\d\d){5}", "", output)
    lines = [line for line in text.splitlines() if ": Creating," not in line]
    assert "  Updating: Baking, 25 % of the requests" in lines
    assert "  Updating: Baking, 100 % of the requests" in lines
    rolled_back, came_about = text.split("canary: updating to candidate")
    assert (
        "canary: InService with current\n  The deployment was rolled back: the CloudWatch alarm "
        in rolled_back
    )
    assert "'faulty-5xx' went to ALARM" in rolled_back
    assert "ModelError, " in rolled_back
    assert "canary: InService with candidate\n" in came_about
    assert "ModelError" not in came_about
    assert re.search(r"requests: \d+ answered\ndeleted\n$", came_about)


def test_walk_throughs_leave_nothing(host: HostProcess, started: Processes) -> None:
    for process in started.values():
        process.communicate(timeout=280)
    sagemaker = host.client("sagemaker")
    assert sagemaker.list_models()["Models"] == []
    assert sagemaker.list_endpoint_configs()["EndpointConfigs"] == []
    assert host.client("s3").list_buckets()["Buckets"] == []
    waiter = sagemaker.get_waiter("endpoint_deleted")
    for entry in sagemaker.list_endpoints()["Endpoints"]:
        waiter.wait(EndpointName=entry["EndpointName"], WaiterConfig={"Delay": 1})


def test_clients_are_made_as_published_code_makes_them() -> None:
    for name in (*NAMES, "batch_transform", *SHORT):
        source = Path(f"examples/hosting/{name}.py").read_text()
        assert re.findall(r"boto3\.client\((.*)\)", source)
        assert not re.findall(r'boto3\.client\("[^"]*",', source)
        assert "endpoint_url" not in source
