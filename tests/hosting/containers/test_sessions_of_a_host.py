"""Stateful sessions on a real host: across instances, router processes and restarts."""

import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.substrates.processes import end_marked
from tests.hosting.containers.programs import write_stateful
from tests.support.host import HostProcess, start_host

ROLE = "arn:aws:iam::000000000000:role/any"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory for the host, of which nothing runs in the end."""
    write_stateful(tmp_path)
    yield tmp_path
    end_marked(tmp_path / "host", 0.0)


def create(host: HostProcess, image: Path, count: int) -> None:
    """An endpoint ``e`` of so many instances, in service."""
    sagemaker = host.client("sagemaker")
    sagemaker.create_model(ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": str(image)})
    one = {
        "VariantName": "A",
        "ModelName": "m",
        "InstanceType": "ml.local.cpu",
        "InitialInstanceCount": count,
    }
    sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[one])
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
    host.wait_until(
        lambda: sagemaker.describe_endpoint(EndpointName="e")["EndpointStatus"] == "InService", "the endpoint"
    )


def opened(runtime: Any, end: str = "") -> tuple[str, int]:
    """A new session, and the process that has it."""
    answer = runtime.invoke_endpoint(EndpointName="e", SessionId="NEW_SESSION", Body=end)
    return answer["NewSessionId"].partition(";")[0], int(answer["Body"].read())


def add(runtime: Any, session: str, number: int) -> tuple[int, int]:
    """The process that has a session, and what that has come to."""
    answer = runtime.invoke_endpoint(EndpointName="e", SessionId=session, Body=str(number))
    process, total = json.loads(answer["Body"].read())
    return process, total


def refusal(runtime: Any, session: str) -> str:
    """With what a request in a session is answered that must not succeed."""
    with pytest.raises(ClientError) as caught:
        runtime.invoke_endpoint(EndpointName="e", SessionId=session, Body="1")
    return f"{caught.value.response['Error']['Code']}: {caught.value.response['Error']['Message']}"


def _is_lost(runtime: Any, session: str) -> bool:
    """Whether a router knows that the instance of a session is gone."""
    return "is lost, as its instance i-" in refusal(runtime, session)


def test_sessions_of_two_instances_and_one_that_is_killed(place: Path) -> None:
    with start_host(place / "host", "--router-processes=2") as host:
        create(host, place / "stateful", 2)
        clients = [host.another_client("sagemaker-runtime") for _ in range(4)]
        sessions = [opened(clients[number % 4]) for number in range(10)]
        processes = {process for _, process in sessions}
        assert len(processes) == 2
        for number in (1, 2):
            for at, (session, process) in enumerate(sessions):
                assert add(clients[(at + number) % 4], session, 5) == (process, 5 * number)

        soon = datetime.now(UTC) + timedelta(seconds=1)
        short, _ = opened(clients[0], soon.strftime("%Y-%m-%dT%H:%M:%SZ"))
        host.wait_until(lambda: datetime.now(UTC) > soon, "the end of a session")
        assert f"Session {short} of endpoint e expired at" in refusal(clients[1], short)
        assert refusal(clients[2], f"{sessions[0][0]}x").startswith("ValidationError: Session ")
        assert "is not known" in refusal(clients[2], f"{sessions[0][0]}x")

        killed = sessions[0][1]
        os.kill(killed, signal.SIGKILL)
        lost = [session for session, process in sessions if process == killed]
        kept = [session for session, process in sessions if process != killed]
        host.wait_until(lambda: refusal(clients[0], lost[0]).startswith("ValidationError"), "its loss")
        for client in clients:
            host.wait_until(partial(_is_lost, client, lost[-1]), "its loss at each router")
        assert [add(clients[3], session, 1)[1] for session in kept] == [11] * len(kept)
        sagemaker = host.client("sagemaker")

        def count() -> int:
            [variant] = sagemaker.describe_endpoint(EndpointName="e")["ProductionVariants"]
            return int(variant["CurrentInstanceCount"])

        host.wait_until(lambda: count() == 2, "another instance")
        assert "is lost" in refusal(clients[0], lost[0])  # another instance does not have it


def test_sessions_outlive_the_host(place: Path) -> None:
    with start_host(place / "host") as host:
        create(host, place / "stateful", 2)
        runtime = host.client("sagemaker-runtime")
        sessions = [opened(runtime) for _ in range(4)]
        host.stop(signal.SIGKILL)
    with start_host(place / "host") as host:
        sagemaker, runtime = host.client("sagemaker"), host.client("sagemaker-runtime")
        host.wait_until(
            lambda: sagemaker.describe_endpoint(EndpointName="e")["EndpointStatus"] == "InService",
            "the endpoint",
        )
        assert [add(runtime, session, 3) for session, _ in sessions] == [
            (process, 3) for _, process in sessions
        ]
        runtime.invoke_endpoint(EndpointName="e", SessionId=sessions[0][0], Body="close")
        assert "is closed" in refusal(runtime, sessions[0][0])
