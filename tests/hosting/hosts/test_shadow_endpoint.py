"""A shadow variant on a real host, as boto3 and the commands show it."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.host import HostProcess, start_host
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(700)

_ROLE = "arn:aws:iam::000000000000:role/any"
_PROGRAM = """#!{python}
import json, os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(b"")

    def do_POST(self):
        number = float(self.rfile.read(int(self.headers["Content-Length"])))
        number += float(os.environ["OFF_BY"]) if number == 2 else 0
        tensor = {{"name": "y", "datatype": "FP32", "shape": [2], "data": [1.0, number]}}
        self.answer(json.dumps({{"outputs": [tensor]}}).encode())

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass

ThreadingHTTPServer(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Handler).serve_forever()
"""


def write_program(directory: Path) -> Path:
    """An executable that answers with a tensor; OFF_BY is what it adds to one of its numbers if that is 2."""
    program = directory / "program"
    program.write_text(_PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    return program


def create_endpoint(host: HostProcess, program: Path, off_by: str = "0.5") -> None:
    """The endpoint `e` with the variant `current` and its shadow `candidate`, in service."""
    sagemaker = host.client("sagemaker")
    for name, off in (("current", "0"), ("candidate", off_by)):
        container = {"Image": str(program), "Environment": {"OFF_BY": off}}
        sagemaker.create_model(ModelName=name, ExecutionRoleArn=_ROLE, PrimaryContainer=container)
    production, shadow = (
        {
            "VariantName": name,
            "ModelName": name,
            "InstanceType": "ml.local.cpu",
            "InitialInstanceCount": 1,
            "InitialVariantWeight": 1.0,
        }
        for name in ("current", "candidate")
    )
    sagemaker.create_endpoint_config(
        EndpointConfigName="c", ProductionVariants=[production], ShadowProductionVariants=[shadow]
    )
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="e", WaiterConfig={"Delay": 1})


def metric(
    host: HostProcess, name: str, statistic: str = "Sum", variant: str = "candidate", **more: str
) -> float:
    """What CloudWatch says of a metric."""
    dimensions = {"EndpointName": "e", "VariantName": variant, **more}
    now = datetime.now(UTC)
    answer = host.client("cloudwatch").get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName=name,
        Dimensions=[{"Name": key, "Value": value} for key, value in dimensions.items()],
        StartTime=now - timedelta(hours=1),
        EndTime=now + timedelta(minutes=1),
        Period=7200,
        Statistics=[statistic],
    )
    return sum(float(point[statistic]) for point in answer["Datapoints"])


@pytest.mark.parametrize("routers", [1, 2])
def test_copies_are_counted_compared_and_shown(tmp_path: Path, routers: int) -> None:
    with start_host(tmp_path / "host", f"--router-processes={routers}") as host:
        create_endpoint(host, write_program(tmp_path))
        runtime = host.client("sagemaker-runtime")
        for number in (1, 2, 3, 4):
            answer = runtime.invoke_endpoint(EndpointName="e", Body=str(number).encode())
            assert answer["InvokedProductionVariant"] == "current"
            answer["Body"].close()
        # The process that compares has the lowest priority: where all cores are busy, it takes a minute.
        wait_until(lambda: metric(host, "ShadowAgreement", "SampleCount") == 4, "comparisons", timeout=600)
        # what a router has counted may come later than what was compared
        wait_until(lambda: metric(host, "Invocations") == 4, "invocations")
        assert metric(host, "Invocations", variant="current") == 4
        assert metric(host, "ShadowCopiesLost") == 0
        assert metric(host, "ShadowAgreement") == metric(host, "ShadowAgreement", OutputName="y") == 3
        assert metric(host, "ShadowEqualElements", "Average") == 7 / 8
        assert metric(host, "ShadowMaxAbsoluteDifference", "Maximum", OutputName="y") == 0.5
        assert metric(host, "ShadowStatusAgreement") == 4
        assert metric(host, "ShadowedModelLatency", "SampleCount") == 4
        [shadow] = host.client("sagemaker").describe_endpoint(EndpointName="e")["ShadowProductionVariants"]
        assert (shadow["VariantName"], shadow["CurrentInstanceCount"]) == ("candidate", 1)
        shown = subprocess.run(
            [sys.executable, "-m", "halimede", "endpoints", "e"],
            env=dict(host.environment), capture_output=True, text=True, timeout=60, check=True,
        ).stdout  # fmt: skip
        assert "| candidate (shadow) | 1 " in shown
        assert (
            "candidate was sent 4 copies of current's requests in the last hour; 0 were lost, 4 compared.\n"
            in shown
        )
        assert "| Latency      | current " in shown
        assert "| same outcome |" in shown
        assert "| whole answer | 75.0 % | 87.5 %         | 100.0 %  | 0.5             | 0.2 " in shown
        assert "| y            | 75.0 % | 87.5 %         | 100.0 %  | 0.5             | 0.2 " in shown
