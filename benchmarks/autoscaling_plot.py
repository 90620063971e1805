"""Draw how a variant of a running host follows its load: `python -m benchmarks.autoscaling_plot SVG [DIRECTORY]`.

The host is the one of AWS_ENDPOINT_URL, started with `--metric-period=1`; DIRECTORY is what `examples.hosting.build`
has written. Two minutes of load, which rises, spikes and ends, stand for two hours.
"""

import math
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import numpy as np

from examples.answers import tensor
from examples.hosting import bodies

NAME, VARIANT, BUCKET = "followed", "AllTraffic", "autoscaling-plot"
ROLE = "arn:aws:iam::000000000000:role/sagemaker-execution"
IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"
TARGET, MOST = 10.0, 6
LENGTH_S = 130
CLIENTS = 4

WIDTH, HEIGHT, MARGIN = 760, 300, 46


@dataclass(frozen=True, slots=True)
class Point:
    """What was seen in one second.

    Attributes:
        second: since the beginning.
        requests: that were sent.
        instances: that took requests.
    """

    second: int
    requests: float
    instances: int


def rate(second: float) -> float:
    """Requests a second: a slow rise and fall, a spike, and next to nothing."""
    if second < 60:
        return 3 + 22 * math.sin(math.pi * second / 60) ** 2
    return 45.0 if 70 <= second < 90 else 2.0


@contextmanager
def load(begin: float) -> Iterator[None]:
    """Requests while the block runs."""
    over = threading.Event()
    request = bodies.request(tensor("image", np.zeros((1, 8, 8), np.uint8)))

    def ask() -> None:
        runtime = boto3.client("sagemaker-runtime")
        while not over.wait(CLIENTS / rate(time.monotonic() - begin)):
            runtime.invoke_endpoint(EndpointName=NAME, **request)["Body"].read()

    threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def create(directory: Path) -> None:
    """Have an endpoint that is scaled."""
    sagemaker, s3 = boto3.client("sagemaker"), boto3.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    s3.upload_file(str(directory / "archives" / "current.tar.gz"), BUCKET, "digits.tar.gz")
    container = {
        "Image": IMAGE,
        "ModelDataUrl": f"s3://{BUCKET}/digits.tar.gz",
        "Environment": {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "digits"},
    }
    sagemaker.create_model(ModelName=NAME, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {"VariantName": VARIANT, "ModelName": NAME, "InstanceType": "ml.m5.large"}
    sagemaker.create_endpoint_config(EndpointConfigName=NAME, ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName=NAME, EndpointConfigName=NAME)
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=NAME)
    scaling = boto3.client("application-autoscaling")
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/{NAME}/variant/{VARIANT}",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    scaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=MOST)
    scaling.put_scaling_policy(
        **target,
        PolicyName="load",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": TARGET,
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
            },
        },
    )


def remove() -> None:
    """Leave nothing behind."""
    sagemaker, s3 = boto3.client("sagemaker"), boto3.client("s3")
    sagemaker.delete_endpoint(EndpointName=NAME)
    sagemaker.delete_endpoint_config(EndpointConfigName=NAME)
    sagemaker.delete_model(ModelName=NAME)
    s3.delete_object(Bucket=BUCKET, Key="digits.tar.gz")
    s3.delete_bucket(Bucket=BUCKET)


def observe() -> list[Point]:
    """What happens under the load."""
    sagemaker, cloudwatch = boto3.client("sagemaker"), boto3.client("cloudwatch")
    begin, began = time.monotonic(), int(time.time())
    counts: dict[int, int] = {}
    with load(begin):
        while (second := int(time.monotonic() - begin)) < LENGTH_S:
            (variant,) = sagemaker.describe_endpoint(EndpointName=NAME)["ProductionVariants"]
            counts[second] = variant["CurrentInstanceCount"]
            time.sleep(0.5)
    answer: dict[str, Any] = cloudwatch.get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName="Invocations",
        Dimensions=[{"Name": "EndpointName", "Value": NAME}, {"Name": "VariantName", "Value": VARIANT}],
        StartTime=datetime.fromtimestamp(began, UTC),
        EndTime=datetime.fromtimestamp(began + LENGTH_S, UTC),
        Period=1,
        Statistics=["Sum"],
    )
    sums = {int(each["Timestamp"].timestamp()) - began: each["Sum"] for each in answer["Datapoints"]}
    return [Point(second, sums.get(second, 0.0), count) for second, count in sorted(counts.items())]


def drawing(points: list[Point]) -> str:
    """The points as SVG: requests by the left axis, instances by the right one."""
    most = max(point.requests for point in points)
    tall = HEIGHT - 2 * MARGIN

    def x(second: float) -> float:
        return round(MARGIN + second / LENGTH_S * (WIDTH - 2 * MARGIN), 1)

    def y(share: float) -> float:
        return round(HEIGHT - MARGIN - share * tall, 1)

    def text(left: float, top: float, words: object, anchor: str, color: str = "#808080") -> str:
        return f'<text x="{left}" y="{top}" text-anchor="{anchor}" fill="{color}">{words}</text>'

    requests = " ".join(f"{x(point.second)},{y(point.requests / most)}" for point in points)
    steps = " ".join(
        f"{x(at)},{y(point.instances / MOST)}" for point in points for at in (point.second, point.second + 1)
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
        "<style>text { font: 12px sans-serif }</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<polyline points="{requests}" fill="none" stroke="#4878a8" stroke-width="1.5"/>',
        f'<polyline points="{steps}" fill="none" stroke="#c05028" stroke-width="2.5"/>',
        f'<path d="M{x(0)},{y(1)} V{y(0)} H{x(LENGTH_S)} V{y(1)}" fill="none" stroke="#808080"/>',
        text(x(0), MARGIN - 12, "requests a period", "start", "#4878a8"),
        text(x(LENGTH_S), MARGIN - 12, "instances", "end", "#c05028"),
        text(x(LENGTH_S / 2), HEIGHT - 8, "periods", "middle"),
    ]
    for second in range(0, LENGTH_S + 1, 10):
        lines.append(text(x(second), HEIGHT - MARGIN + 18, second, "middle"))
    for value in range(0, int(most) + 1, 10):
        lines.append(text(MARGIN - 6, y(value / most) + 4, value, "end"))
    for value in range(MOST + 1):
        lines.append(text(WIDTH - MARGIN + 6, y(value / MOST) + 4, value, "start"))
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    output = Path(sys.argv[1])
    create(Path(sys.argv[2] if len(sys.argv) > 2 else "build/hosting"))
    try:
        points = observe()
    finally:
        remove()
    output.write_text(drawing(points))
    for point in points:
        print(point.second, int(point.requests), point.instances)


if __name__ == "__main__":
    main()
