"""A host that is killed at any moment goes on where it was when it is started again."""

import os
import random
import signal
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.substrates.processes import end_marked, marked
from tests.hosting.substrates.instances import write_serve
from tests.support.host import HostProcess, start_host
from tests.support.server import run_command
from tests.support.waiting import wait_until

ROLE = "arn:aws:iam::000000000000:role/halimede"
LONGEST_S = 0.8
"""A host is killed so long after an operation was begun at the latest; by then it is over."""

pytestmark = pytest.mark.timeout(400)  # on a busy machine a host takes seconds to start


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory with an archive and a program, and one for the host, of which nothing runs in the end."""
    (tmp_path / "bucket").mkdir()
    (tmp_path / "config.pbtxt").write_text('backend: "x"')
    with tarfile.open(tmp_path / "bucket" / "model.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "config.pbtxt", "m/config.pbtxt")
    write_serve(tmp_path)
    yield tmp_path
    end_marked(tmp_path / "host", 0.0)


@contextmanager
def _host(place: Path) -> Iterator["Host"]:
    with start_host(place / "host", f"--bucket=models={place / 'bucket'}", "--describe-hold=5") as process:
        yield Host(process, place)


class Host:
    """What is asked of the host."""

    def __init__(self, process: HostProcess, place: Path) -> None:
        self.process = process
        self.sagemaker = process.client("sagemaker")
        self._runtime = process.client("sagemaker-runtime")
        self._place = place

    def prepare(self) -> None:
        """Make a model, and configurations ``c1`` and ``c2`` of so many instances."""
        container = {"Image": str(self._place / "serve-program"), "ModelDataUrl": "s3://models/model.tar.gz"}
        self.sagemaker.create_model(ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer=container)
        for count in (1, 2):
            variant = {
                "VariantName": "A",
                "ModelName": "m",
                "InstanceType": "ml.local.cpu",
                "InitialInstanceCount": count,
            }
            self.sagemaker.create_endpoint_config(
                EndpointConfigName=f"c{count}", ProductionVariants=[variant]
            )

    def describe(self) -> dict[str, Any] | None:
        """The endpoint when nothing is done to it any more; None if it is not there."""
        settled: list[dict[str, Any] | None] = []

        def settles() -> bool:
            try:
                described: dict[str, Any] = self.sagemaker.describe_endpoint(EndpointName="e")
            except ClientError as error:
                if "Could not find endpoint" not in str(error):
                    raise
                settled.append(None)
            else:
                if described["EndpointStatus"] in ("InService", "Failed"):
                    settled.append(described)
            return bool(settled)

        self.process.wait_until(settles, "the end of all changes to the endpoint")
        return settled[0]

    def count(self) -> int:
        """How many instances of the endpoint take requests."""
        (variant,) = self.sagemaker.describe_endpoint(EndpointName="e")["ProductionVariants"]
        count: int = variant["CurrentInstanceCount"]
        return count

    def invoke(self) -> bytes:
        body: bytes = self._runtime.invoke_endpoint(EndpointName="e", Body=b"x")["Body"].read()
        return body

    def check(self, configs: set[str | None]) -> str | None:
        """The endpoint is in one of the states, with exactly its instances, and answers: its configuration."""
        described = self.describe()
        config = None if described is None else described["EndpointConfigName"]
        assert config in configs, self.process.log
        wanted = int(config[1:]) if config else 0
        if described is not None:
            assert described["EndpointStatus"] == "InService", described
            assert self.count() == wanted
            assert self.invoke() == b"OK"
        wait_until(lambda: len(set(self.instances().values())) == wanted, "instances")
        directory = self._place / "host" / "instances"
        wait_until(lambda: set(directory.iterdir()) == set(self.instances().values()), "directories")
        wait_until(lambda: len(list((self._place / "host" / "fleets").glob("*"))) == bool(wanted), "fleets")
        return config

    def instances(self) -> dict[int, Path]:
        """The processes of instances."""
        return dict(marked(self._place / "host"))

    def has_another(self, than: set[Path]) -> bool:
        """Whether there is an instance that is none of these."""
        return len(set(self.instances().values()) - than) == 1

    def killed_in(self, delay_s: float, operation: Callable[[], object]) -> bool:
        """Begin an operation and kill the host after a while: whether the operation was answered."""
        timer = threading.Timer(delay_s, self.process.process.kill)
        timer.start()
        answered = False
        with suppress(Exception):  # the connection breaks in one way or another
            operation()
            answered = True
        self.process.process.wait(60)
        timer.join()
        return answered


def test_a_host_that_is_killed_goes_on_where_it_was(place: Path) -> None:
    chance = random.Random(6)
    # what the endpoint may be now: whether an operation that was not answered has begun cannot be known
    possible: set[str | None] = {None}
    for life in range(6):
        with _host(place) as host:
            if not life:
                host.prepare()
            now = host.check(possible)
            if now is None:
                name, after = "create_endpoint", "c1"
            elif now == "c1":
                name, after = "update_endpoint", "c2"
            else:
                name, after = "delete_endpoint", None
            request = {"EndpointName": "e", **({"EndpointConfigName": after} if after else {})}
            operation = getattr(host.sagemaker, name)
            answered = host.killed_in(chance.random() * LONGEST_S, lambda: operation(**request))  # noqa: B023
            possible = {after} if answered else {now, after}
    with _host(place) as host:
        host.check(possible)
        assert host.process.stop() == 0
        assert not host.instances()


def test_instances_that_are_killed_are_replaced_and_updates_lose_no_request(place: Path) -> None:
    with _host(place) as host:
        host.prepare()
        host.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c2")
        host.check({"c2"})
        over = threading.Event()
        failures: list[Exception] = []
        answers: list[bytes] = []

        def ask() -> None:
            while not over.is_set():
                try:
                    answers.append(host.invoke())
                except ClientError as error:
                    failures.append(error)
                over.wait(0.01)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            for config in ("c1", "c2"):
                host.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName=config)
                host.check({config})
            assert not failures
            assert set(answers) == {b"OK"}
            for pid in host.instances():
                before = set(host.instances().values())
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                wait_until(partial(host.has_another, before), "another one")
            wait_until(lambda: host.count() == 2, "instances that take requests")
            host.check({"c2"})
            number = len(answers)
            wait_until(lambda: len(answers) > number + 20, "answers")
        finally:
            over.set()
            asking.join()
        for failure in failures:
            assert "ModelError" in str(failure) or "ServiceUnavailable" in str(failure)


def test_a_state_that_is_no_database_is_told(place: Path) -> None:
    (place / "host").mkdir()
    (place / "host" / "state.db").write_bytes(b"this is no database, " * 100)
    result = run_command("host", f"--directory={place / 'host'}", "--port=0")
    assert result.returncode == 1
    path = place / "host" / "state.db"
    assert result.stderr.endswith(
        f"cannot use {path}, which holds the host's state: file is not a database\n"
    )
    assert "Traceback" not in result.stderr
