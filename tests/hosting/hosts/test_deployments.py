"""Deployments on a real host under load: no request fails that the policy does not let fail."""

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from halimede.hosting.substrates.processes import end_marked, marked
from tests.hosting.control.deployments.test_policies import blue_green, percent, rolling
from tests.support.host import HostProcess, start_host

ROLE = "arn:aws:iam::000000000000:role/x"
CLIENTS = 3
PAUSE_S = 0.05
"""Each client's, between two requests: what they show takes many, but not all that the machine can do."""

PROGRAM = """#!{python} -SE
import os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        self.answer(200)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.002)
        self.answer(int(os.environ["STATUS"]))

    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", str(len(os.environ["SAYS"])))
        self.end_headers()
        self.wfile.write(os.environ["SAYS"].encode())

    def log_message(self, *arguments):
        pass

time.sleep(float(os.environ["START_S"]))
if os.environ["STATUS"] == "0":
    sys.exit("it does not come up")
ThreadingHTTPServer(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Handler).serve_forever()
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory with a program, and one for the host, of which nothing runs in the end."""
    program = tmp_path / "program"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    yield tmp_path
    end_marked(tmp_path / "host", 0.0)


@contextmanager
def started(place: Path, *flags: str) -> Iterator["Host"]:
    with start_host(place / "host", "--metric-period=1", "--describe-hold=1", *flags) as process:
        yield Host(process, place)


class Host:
    """What is asked of the host."""

    def __init__(self, process: HostProcess, place: Path) -> None:
        self.process = process
        self.sagemaker = process.client("sagemaker")
        self.cloudwatch = process.client("cloudwatch")
        self._place = place

    def configure(self, name: str, count: int = 1, status: int = 200, start_s: float = 0.0) -> None:
        """Have a model and a configuration whose instances say their name."""
        variables = {"SAYS": name, "STATUS": str(status), "START_S": str(start_s)}
        container = {"Image": str(self._place / "program"), "Environment": variables}
        self.sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
        variant = {
            "VariantName": "A",
            "ModelName": name,
            "InstanceType": "ml.t2.medium",
            "InitialInstanceCount": count,
        }
        self.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])

    def serve(self, count: int = 1) -> None:
        """Have an endpoint ``e`` of configuration ``old``."""
        self.configure("old", count)
        self.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="old")
        assert self.settled()["EndpointStatus"] == "InService"

    def put_alarm(self, config: str) -> dict[str, Any]:
        """Have an alarm on the errors of a configuration: what rolls back by it."""
        dimensions = {"EndpointName": "e", "VariantName": "A", "EndpointConfigName": config}
        self.cloudwatch.put_metric_alarm(
            AlarmName=f"errors of {config}",
            Namespace="AWS/SageMaker",
            MetricName="Invocation5XXErrors",
            Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
            Statistic="Average",
            Period=60,
            EvaluationPeriods=1,
            Threshold=0.2,
            ComparisonOperator="GreaterThanThreshold",
            TreatMissingData="notBreaching",
        )
        return {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": f"errors of {config}"}]}}

    def update(self, config: str, policy: dict[str, Any]) -> None:
        self.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName=config, DeploymentConfig=policy)

    def describe(self) -> dict[str, Any]:
        described: dict[str, Any] = self.sagemaker.describe_endpoint(EndpointName="e")
        return described

    def stage(self) -> str:
        """What is being done to the new fleet's variant, and how far it has come; "" if nothing is."""
        pending = self.describe().get("PendingDeploymentSummary", {}).get("ProductionVariants", [{}])
        status = pending[0].get("VariantStatus", [{}])[0]
        return f"{status.get('Status', '')} {status.get('StatusMessage', '')}"

    def settled(self) -> dict[str, Any]:
        """The endpoint when nothing is done to it any more."""
        self.until(
            lambda: self.describe()["EndpointStatus"] in ("InService", "Failed", "UpdateRollbackFailed")
        )
        return self.describe()

    def until(self, condition: Callable[[], object]) -> None:
        """Return once the condition holds; it may take seconds."""
        self.process.wait_until(condition, "the next stage of a deployment", longest_s=0.05)

    def instances(self) -> dict[int, Path]:
        """The processes of instances."""
        return dict(marked(self._place / "host"))

    @contextmanager
    def load(self) -> Iterator["Load"]:
        """Requests, while the block runs."""
        load = Load([self.process.another_client("sagemaker-runtime") for _ in range(CLIENTS)])
        try:
            yield load
        finally:
            load.end()


class Load:
    """Clients that ask again and again.

    Attributes:
        answers: what was answered: the text of an instance, or the status of an error.
        failures: errors that no instance has answered.
    """

    def __init__(self, clients: list[Any]) -> None:
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(client,)) for client in clients]
        for thread in self._threads:
            thread.start()

    def _ask(self, client: Any) -> None:
        while not self._over.is_set():
            try:
                answer = client.invoke_endpoint(EndpointName="e", Body=b"x")["Body"].read().decode()
            except ClientError as error:
                text = error.response.get("OriginalMessage", "")
                answer = f"error of {text}"
                if error.response.get("OriginalStatusCode") != 500:
                    self.failures.append(str(error))
            except BotoCoreError:  # the host is not there
                answer = "no host"
                self._over.wait(0.05)
            self.answers[answer] += 1
            self._over.wait(PAUSE_S)

    def share(self, of: str, count: int, until: Callable[[Callable[[], object]], None]) -> float:
        """The share of some instances in the next so many answers."""
        before = Counter(self.answers)
        until(lambda: (self.answers - before).total() >= count)
        since = self.answers - before
        return (since[of] + since[f"error of {of}"]) / since.total()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def test_a_canary_that_answers_with_errors_is_rolled_back_by_its_alarm_and_a_good_one_comes_about(
    place: Path,
) -> None:
    with started(place, "--router-processes=2") as host:
        host.serve()
        host.configure("bad", status=500)
        host.configure("good")
        with host.load() as load:
            policy = blue_green("CANARY", 3600, CanarySize=percent(25))
            host.update("bad", {**policy, **host.put_alarm("bad")})
            described = host.settled()
            assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "old")
            assert (
                "the CloudWatch alarm 'errors of bad' went to ALARM (Threshold Crossed"
                in described["FailureReason"]
            )
            assert load.answers["error of bad"] > 0
            assert load.share("old", 100, host.until) == 1

            host.update(
                "good", {**blue_green("CANARY", 10, CanarySize=percent(25)), **host.put_alarm("good")}
            )
            host.until(lambda: host.stage().startswith("Baking 25 % of the requests, until 20"))
            assert load.share("good", 200, host.until) == pytest.approx(0.25, abs=0.15)
            described = host.settled()
            assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "good")
            assert load.share("good", 100, host.until) == 1
        assert load.failures == []
        assert set(load.answers) == {"old", "error of bad", "good"}
        host.until(lambda: len(set(host.instances().values())) == 1)


@pytest.mark.parametrize("how", ["does not come up", "dies half-way"])
def test_no_request_fails_when_the_new_fleet_does_not_come_up_or_dies_half_way(place: Path, how: str) -> None:
    with started(place) as host:
        host.serve()
        host.configure("new", status=0 if how == "does not come up" else 200, start_s=0.3)
        before = host.instances()
        with host.load() as load:
            host.update("new", blue_green("CANARY", 3600, CanarySize=percent(50)))
            if how == "dies half-way":
                host.until(lambda: load.answers["new"] > 20)
                for pid in host.instances().keys() - before.keys():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            described = host.settled()
            assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "old")
            assert described["FailureReason"]
            assert load.share("old", 100, host.until) == 1
        assert load.failures == []
        assert not [each for each in load.answers if each.startswith("error")]
        host.until(lambda: len(set(host.instances().values())) == 1)


def test_a_host_that_is_killed_in_the_middle_of_a_linear_update_goes_on(place: Path) -> None:
    with started(place) as host:
        host.serve()
        host.configure("new")
        with host.load() as load:
            host.update("new", blue_green("LINEAR", 8, LinearStepSize=percent(50)))
            host.until(lambda: host.stage().startswith("Baking 50 %"))
            assert load.share("new", 50, host.until) > 0
            host.process.process.kill()
            host.process.process.wait()
        assert load.failures == []
        running = set(host.instances().values())
        assert len(running) == 2
    with started(place) as host, host.load() as load:
        host.until(lambda: host.stage().startswith("Baking 50 %"))
        assert load.share("new", 100, host.until) == pytest.approx(0.5, abs=0.25)
        assert set(host.instances().values()) == running
        described = host.settled()
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "new")
        assert load.share("new", 50, host.until) == 1
        host.until(lambda: len(set(host.instances().values())) == 1)
        load.end()
        assert load.failures == []


def test_a_rolling_update_replaces_four_instances_with_room_for_five_and_loses_no_request(
    place: Path,
) -> None:
    with started(place) as host:
        host.serve(4)
        host.configure("new", 4)
        most = 0

        def is_over() -> bool:
            nonlocal most
            most = max(most, len(set(host.instances().values())))
            return bool(host.describe()["EndpointStatus"] == "InService")

        with host.load() as load:
            host.update("new", {**rolling(percent(25), 1), **host.put_alarm("new")})
            host.until(is_over)
            assert host.describe()["EndpointConfigName"] == "new"
            assert load.share("new", 50, host.until) == 1
            host.until(lambda: len(set(host.instances().values())) == 4)
        assert (load.failures, most) == ([], 5)
        assert set(load.answers) == {"old", "new"}
