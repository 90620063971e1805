"""The calls of published notebooks that deploy many Triton models on one endpoint, scale it and look at its metrics."""

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
from botocore.exceptions import ClientError

from halimede.sagemaker_sdk import use_host
from tests.hosting.sdks.sdk import Session, get_execution_role

archive, picture, result = map(Path, sys.argv[1:])
said: dict[str, object] = {}
use_host()

sagemaker_session = Session(boto_session=boto3.Session())
role = get_execution_role(sagemaker_session)
bucket, prefix = sagemaker_session.default_bucket(), "notebook-many"
s3, sm_client = boto3.client("s3"), boto3.client(service_name="sagemaker")
runtime = boto3.client("sagemaker-runtime")
for number in range(5):
    if number:
        source = {"Bucket": bucket, "Key": f"{prefix}/bert-0.tar.gz"}
        s3.copy_object(Bucket=bucket, CopySource=source, Key=f"{prefix}/bert-{number}.tar.gz")
    else:
        s3.upload_file(str(archive), bucket, f"{prefix}/bert-0.tar.gz")

name = f"notebook-many-{time.strftime('%H-%M-%S', time.gmtime())}"
image = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:22.09-py3"
container = {"Image": image, "ModelDataUrl": f"s3://{bucket}/{prefix}/", "Mode": "MultiModel"}
sm_client.create_model(ModelName=name, ExecutionRoleArn=role, PrimaryContainer=container)
variant = {
    "InstanceType": "ml.m5.large",
    "InitialVariantWeight": 1,
    "InitialInstanceCount": 1,
    "ModelName": name,
    "VariantName": "AllTraffic",
}
sm_client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
sm_client.get_waiter("endpoint_in_service").wait(EndpointName=name)

# the policy that these notebooks put: instances follow the use of GPUs
scaling, resource = boto3.client("application-autoscaling"), f"endpoint/{name}/variant/AllTraffic"
target = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": resource,
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
scaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=5)
scaling.put_scaling_policy(
    **target,
    PolicyName="GPUUtil-ScalingPolicy",
    PolicyType="TargetTrackingScaling",
    TargetTrackingScalingPolicyConfiguration={
        "TargetValue": 60.0,
        "CustomizedMetricSpecification": {
            "MetricName": "GPUUtilization",
            "Namespace": "/aws/sagemaker/Endpoints",
            "Dimensions": [
                {"Name": "EndpointName", "Value": name},
                {"Name": "VariantName", "Value": "AllTraffic"},
            ],
            "Statistic": "Average",
            "Unit": "Percent",
        },
        "ScaleInCooldown": 600,
        "ScaleOutCooldown": 200,
    },
)
policies = scaling.describe_scaling_policies(ServiceNamespace="sagemaker", ResourceId=resource)
said |= {"policies": [each["PolicyName"] for each in policies["ScalingPolicies"]]}

digits = []
for number in range(5):
    answer = runtime.invoke_endpoint(
        EndpointName=name,
        ContentType="application/octet-stream",
        Body=picture.read_text(),
        TargetModel=f"bert-{number}.tar.gz",
    )
    data = json.loads(answer["Body"].read())["outputs"][0]["data"]
    digits.append(data.index(max(data)))
said |= {"digits": digits}

cloudwatch = boto3.Session().client("cloudwatch")


def points(metric: str, statistic: str, **dimensions: str) -> list[float]:
    """The values of a metric of the last quarter of an hour."""
    now = datetime.now(UTC)
    of = {"EndpointName": name, "VariantName": "AllTraffic", **dimensions}
    answer = cloudwatch.get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName=metric,
        Dimensions=[{"Name": key, "Value": value} for key, value in of.items()],
        StartTime=now - timedelta(minutes=15),
        EndTime=now + timedelta(minutes=1),
        Period=60,
        **{"ExtendedStatistics" if statistic.startswith("p") else "Statistics": [statistic]},
    )
    return [
        each["ExtendedStatistics"][statistic] if statistic.startswith("p") else each[statistic]
        for each in answer["Datapoints"]
    ]


counted = ("Invocations", "Invocation4XXErrors", "ModelCacheHit")
said |= {metric: sum(points(metric, "Sum")) for metric in counted}
waited = ("ModelLoadingWaitTime", "ModelDownloadingTime", "ModelLatency")
said |= {"waited": [metric for metric in waited if max(points(metric, "p99"), default=0) > 0]}
said |= {"by configuration": sum(points("Invocations", "Sum", EndpointConfigName=name))}

# what the host does not have
try:
    sm_client.create_model_package_group(ModelPackageGroupName=name)
except ClientError as error:
    said |= {"registry": error.response["Error"]["Code"]}
try:
    boto3.client("lambda").invoke(FunctionName=name, Payload=b"{}")
except ClientError as error:
    said |= {"lambda": error.response["Error"]["Message"].partition(";")[0]}

scaling.deregister_scalable_target(**target)
sm_client.delete_endpoint(EndpointName=name)
sm_client.delete_endpoint_config(EndpointConfigName=name)
sm_client.delete_model(ModelName=name)
result.write_text(json.dumps(said))
