"""Instances that print without end, with a real host: their logs are bounded, also after the host was killed."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.substrates.processes import end_marked
from tests.hosting.substrates.instances import write_serve
from tests.support.host import HostProcess, start_host
from tests.support.server import run_command
from tests.support.waiting import wait_until

ROLE = "arn:aws:iam::000000000000:role/halimede"
MIB = 1 << 20

CHATTER = """
import threading
def chatter():
    number = 0
    while True:
        print("line", number, "x" * 1000, flush=True)
        number += 1
        if not number % 20:
            time.sleep(0.001)
threading.Thread(target=chatter, daemon=True).start()
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory of which nothing runs in the end."""
    yield tmp_path
    end_marked(tmp_path / "host", 0.0)


def create(host: HostProcess, program: Path) -> None:
    sagemaker = host.client("sagemaker")
    container = {"Image": str(program), "Environment": {"SCRIPT": CHATTER}}
    variant = {"VariantName": "A", "ModelName": "m", "InstanceType": "ml.local.cpu"}
    sagemaker.create_model(ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer=container)
    sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
    assert sagemaker.describe_endpoint(EndpointName="e")["EndpointStatus"] == "InService"
    sagemaker.close()


def taken(log: Path) -> int:
    return log.stat().st_blocks * 512


def test_an_instance_that_prints_without_end_does_not_fill_the_disk_whatever_becomes_of_the_host(
    place: Path,
) -> None:
    flag = "--instance-log-mib=4"
    with start_host(place / "host", flag) as host:
        create(host, write_serve(place))
        (log,) = (place / "host" / "logs" / "000000000000" / "us-east-1" / "e" / "A").glob("*.log")
        wait_until(lambda: log.stat().st_size > 12 * MIB and taken(log) <= 4 * MIB, "a shorter log")
        seen = _follow(host, log.stem, "")
        host.stop(signal.SIGKILL)
    # the instance goes on, and nobody looks after its log
    wait_until(lambda: taken(log) > 8 * MIB, "a longer log")
    with start_host(place / "host", flag) as host:
        wait_until(lambda: taken(log) <= 4 * MIB, "a shorter log")
        assert [each.name for each in log.parent.glob("*.log")] == [log.name]  # the same instance
        _follow(host, log.stem, seen)
        shown = run_command("logs", "e", "-n", "2", f"--endpoint-url={host.url}")
        assert shown.returncode == 0, shown.stderr
        first, second = [int(line.split()[1]) for line in shown.stdout.splitlines()]
        assert second == first + 1


def _follow(host: HostProcess, instance: str, token: str) -> str:
    """Read on from a token, or from the last lines: nothing is missing within what is there; the next token."""
    logs = host.client("logs")
    stream = {"logGroupName": "/aws/sagemaker/Endpoints/e", "logStreamName": f"A/{instance}"}
    answer: Any = logs.get_log_events(**stream, **({"nextToken": token} if token else {}))
    for _ in range(3):
        numbers = [int(event["message"].split()[1]) for event in answer["events"]]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        token = answer["nextForwardToken"]
        wait_until(lambda: _grown(logs, stream, token), "more lines")  # noqa: B023
        answer = logs.get_log_events(**stream, nextToken=token)
    logs.close()
    return token


def _grown(logs: Any, stream: dict[str, str], token: str) -> bool:
    return bool(logs.get_log_events(**stream, nextToken=token, limit=1)["events"])
