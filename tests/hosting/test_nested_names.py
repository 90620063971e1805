"""What a request names in members below others is checked like what it names at the top, on a real host."""

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore import xform_name
from botocore.exceptions import ClientError

from tests.hosting.access.test_references import services
from tests.hosting.test_accounts import ROLE, US, VARIANT, A, Accounts, B, keys_file, program
from tests.support.host import start_host
from tests.support.waiting import wait_until

LIMITED = "KEYLIMITED"
"""A key of account A that may act on endpoints ``allowed-*`` only."""

NAMES = ("closed", "allowed-1")
"""The endpoints of account A."""

CAPTURED = {
    "EnableCapture": True,
    "InitialSamplingPercentage": 100,
    "DestinationS3Uri": "s3://captured/x",
    "CaptureOptions": [{"CaptureMode": "Input"}],
}


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    """A host on which account A has two endpoints and one of everything else, and account B has nothing."""
    place = tmp_path_factory.mktemp("nested")
    keys = keys_file(place)
    with keys.open("a") as file:
        file.write(f'[keys.{LIMITED}]\nsecret = "s"\naccount = "{A}"\nendpoints = ["allowed-*"]\n')
    with start_host(place / "host", f"--keys={keys}") as host:
        made = Accounts(host, program(place))
        furnish(made)
        yield made


def furnish(accounts: Accounts) -> None:
    """Let account A have one of everything."""
    accounts.create_model(A)
    sagemaker, cloudwatch = accounts.client("sagemaker", A), accounts.client("cloudwatch", A)
    scaling, sns = accounts.client("application-autoscaling", A), accounts.client("sns", A)
    accounts.client("s3", A).create_bucket(Bucket="captured")
    sagemaker.create_endpoint_config(
        EndpointConfigName="c", ProductionVariants=[VARIANT], DataCaptureConfig=CAPTURED
    )
    for name in NAMES:
        sagemaker.create_endpoint(EndpointName=name, EndpointConfigName="c")
    for name in NAMES:
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=name, WaiterConfig={"Delay": 1})
        sagemaker.create_data_quality_job_definition(**definition(f"d-{name}", name))
        sagemaker.create_monitoring_schedule(
            MonitoringScheduleName=f"s-{name}",
            MonitoringScheduleConfig={
                "ScheduleConfig": {"ScheduleExpression": "cron(0 * ? * * *)"},
                "MonitoringJobDefinitionName": f"d-{name}",
                "MonitoringType": "DataQuality",
            },
        )
        scaled = {
            "ServiceNamespace": "sagemaker",
            "ResourceId": f"endpoint/{name}/variant/A",
            "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
        }
        scaling.register_scalable_target(**scaled, MinCapacity=1, MaxCapacity=2)
        scaling.put_scheduled_action(
            **scaled,
            ScheduledActionName="x",
            Schedule="cron(0 3 * * ? 2099)",
            ScalableTargetAction={"MaxCapacity": 2},
        )
        policy = scaling.put_scaling_policy(
            **scaled,
            PolicyName="p",
            PolicyType="StepScaling",
            StepScalingPolicyConfiguration={
                "AdjustmentType": "ChangeInCapacity",
                "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
            },
        )["PolicyARN"]
        cloudwatch.put_metric_alarm(**alarm(f"a-{name}", name, policy))
        cloudwatch.put_composite_alarm(AlarmName=f"all-{name}", AlarmRule=f'ALARM("a-{name}")')
    topic = sns.create_topic(Name="t")["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="https", Endpoint="https://192.0.2.1/hook")


def definition(name: str, endpoint: str) -> dict[str, Any]:
    """A request for a job definition of an endpoint."""
    return {
        "JobDefinitionName": name,
        "DataQualityAppSpecification": {"ImageUri": "x"},
        "DataQualityJobInput": {"EndpointInput": {"EndpointName": endpoint, "LocalPath": "/opt"}},
        "DataQualityJobOutputConfig": {
            "MonitoringOutputs": [
                {
                    "S3Output": {
                        "S3Uri": "s3://captured/reports",
                        "LocalPath": "/opt",
                        "S3UploadMode": "EndOfJob",
                    }
                }
            ]
        },
        "JobResources": {
            "ClusterConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 1}
        },
        "RoleArn": ROLE.format(A),
    }


def alarm(name: str, endpoint: str, *actions: str) -> dict[str, Any]:
    """A request for an alarm of an endpoint."""
    return {
        "AlarmName": name,
        "MetricName": "Invocations",
        "Namespace": "AWS/SageMaker",
        "Dimensions": [{"Name": "EndpointName", "Value": endpoint}, {"Name": "VariantName", "Value": "A"}],
        "Statistic": "Sum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "Threshold": 1e9,
        "ComparisonOperator": "GreaterThanThreshold",
        "AlarmActions": list(actions),
    }


def policy_of(accounts: Accounts, name: str) -> str:
    """The ARN of the scaling policy of an endpoint of account A."""
    found = accounts.client("application-autoscaling", A).describe_scaling_policies(
        ServiceNamespace="sagemaker", ResourceId=f"endpoint/{name}/variant/A"
    )
    arn: str = found["ScalingPolicies"][0]["PolicyARN"]
    return arn


def code_of(call: Callable[[], object]) -> str:
    """The code with which a call is refused."""
    with pytest.raises(ClientError) as raised:
        call()
    code: str = raised.value.response["Error"]["Code"]
    return code


# another account's


def test_an_asynchronous_endpoint_does_not_publish_to_a_topic_of_another_account(accounts: Accounts) -> None:
    topic = f"arn:aws:sns:{US}:{A}:t"
    sagemaker = accounts.client("sagemaker", B)
    for member in ("SuccessTopic", "ErrorTopic"):
        config = {"S3OutputPath": "s3://x-results/", "NotificationConfig": {member: topic}}
        create = partial(
            sagemaker.create_endpoint_config,
            EndpointConfigName="async",
            ProductionVariants=[VARIANT],
            AsyncInferenceConfig={"OutputConfig": config},
        )
        assert code_of(create) == "AccessDeniedException"
    assert (
        code_of(lambda: accounts.client("sns", B).publish(TopicArn=topic, Message="x"))
        == "AuthorizationError"
    )


def test_an_alarm_has_no_action_of_another_account(accounts: Accounts) -> None:
    policy = policy_of(accounts, "closed")
    foreign = accounts.client("cloudwatch", B)
    for member in ("AlarmActions", "OKActions", "InsufficientDataActions"):
        document = {**alarm("b", "e"), member: [policy]}
        assert code_of(partial(foreign.put_metric_alarm, **document)) == "AccessDeniedException"
    composite = {
        "AlarmName": "b",
        "AlarmRule": "TRUE",
        "ActionsSuppressor": f"arn:aws:cloudwatch:{US}:{A}:alarm:a",
    }
    assert code_of(lambda: foreign.put_composite_alarm(**composite)) == "AccessDeniedException"
    assert foreign.describe_alarms()["MetricAlarms"] == []


def test_an_action_that_finds_no_policy_has_not_been_executed(accounts: Accounts) -> None:
    gone = policy_of(accounts, "closed").replace("policyName/p", "policyName/gone")
    name = f"gone-{uuid.uuid4().hex}"
    cloudwatch = accounts.client("cloudwatch", A)
    cloudwatch.put_metric_alarm(**alarm(name, "closed", gone))
    cloudwatch.set_alarm_state(AlarmName=name, StateValue="ALARM", StateReason="test")

    def acted() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = cloudwatch.describe_alarm_history(
            AlarmName=name, HistoryItemType="Action"
        )["AlarmHistoryItems"]
        return items

    wait_until(acted)
    [item] = acted()
    assert item["HistorySummary"].startswith("Failed to execute action")
    assert json.loads(item["HistoryData"])["actionState"] == "Failed"
    assert f"No scaling policy found for ARN: {gone}" in item["HistoryData"]
    cloudwatch.delete_alarms(AlarmNames=[name])


# an endpoint that a key may not act on

ARN = f"arn:aws:sagemaker:{US}:{A}"

BELOW: Mapping[str, Callable[[Callable[[str], Any], str], Any]] = {
    "job definition": lambda c, e: c("sagemaker").create_data_quality_job_definition(**definition("new", e)),
    "definition's name": lambda c, e: c("sagemaker").describe_data_quality_job_definition(
        JobDefinitionName=f"d-{e}"
    ),
    "schedule": lambda c, e: c("sagemaker").describe_monitoring_schedule(MonitoringScheduleName=f"s-{e}"),
    "schedule's definition": lambda c, e: c("sagemaker").update_monitoring_schedule(
        MonitoringScheduleName="s-allowed-1",
        MonitoringScheduleConfig={"MonitoringJobDefinitionName": f"d-{e}", "MonitoringType": "DataQuality"},
    ),
    "schedule's tags": lambda c, e: c("sagemaker").list_tags(ResourceArn=f"{ARN}:monitoring-schedule/s-{e}"),
    "definition's tags": lambda c, e: c("sagemaker").list_tags(
        ResourceArn=f"{ARN}:data-quality-job-definition/d-{e}"
    ),
    "alarm's metric": lambda c, e: c("cloudwatch").put_metric_alarm(**alarm("new", e)),
    "alarm's name": lambda c, e: c("cloudwatch").disable_alarm_actions(AlarmNames=[f"a-{e}"]),
    "alarm's state": lambda c, e: c("cloudwatch").set_alarm_state(
        AlarmName=f"a-{e}", StateValue="OK", StateReason="x"
    ),
    "alarm's tags": lambda c, e: c("cloudwatch").list_tags_for_resource(
        ResourceARN=f"arn:aws:cloudwatch:{US}:{A}:alarm:a-{e}"
    ),
    "parents": lambda c, e: c("cloudwatch").describe_alarms(ParentsOfAlarmName=f"a-{e}"),
    "scalable targets": lambda c, e: c("application-autoscaling").describe_scalable_targets(
        ServiceNamespace="sagemaker", ResourceIds=[f"endpoint/{e}/variant/A"]
    ),
    "log group's ARN": lambda c, e: c("logs").describe_log_streams(
        logGroupIdentifier=f"arn:aws:logs:{US}:{A}:log-group:/aws/sagemaker/Endpoints/{e}"
    ),
    "query": lambda c, e: c("cloudwatch").get_metric_data(
        MetricDataQueries=[
            {
                "Id": "q",
                "MetricStat": {
                    "Metric": {key: alarm("x", e)[key] for key in ("Namespace", "MetricName", "Dimensions")},
                    "Period": 60,
                    "Stat": "Sum",
                },
            }
        ],
        StartTime=datetime(2026, 1, 1, tzinfo=UTC),
        EndTime=datetime(2026, 1, 2, tzinfo=UTC),
    ),
}
"""Calls that are about an endpoint which they name below other members, or by something that is of it."""


@pytest.mark.parametrize("what", BELOW)
def test_a_key_of_some_endpoints_does_not_reach_others(accounts: Accounts, what: str) -> None:
    def client(service: str) -> Any:
        return accounts.host.client(
            service, region_name=US, aws_access_key_id=LIMITED, aws_secret_access_key="s"
        )

    assert code_of(lambda: BELOW[what](client, "closed")) in ("AccessDeniedException", "AccessDenied")
    assert BELOW[what](client, "allowed-1")["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_an_alarm_of_an_allowed_endpoint_cannot_scale_another_one(accounts: Accounts) -> None:
    policy = policy_of(accounts, "closed")
    client = accounts.host.client(
        "cloudwatch", region_name=US, aws_access_key_id=LIMITED, aws_secret_access_key="s"
    )
    assert (
        code_of(lambda: client.put_metric_alarm(**alarm("new", "allowed-1", policy)))
        == "AccessDeniedException"
    )


# every operation

THINGS = {
    "ModelName": "m",
    "EndpointName": "closed",
    "EndpointConfigName": "c",
    "JobDefinitionName": "d-closed",
    "MonitoringJobDefinitionName": "d-closed",
    "MonitoringScheduleName": "s-closed",
    "MonitoringAlertName": "DefaultAlert",
    "AlarmName": "a-closed",
    "AlarmNames": "a-closed",
    "ChildrenOfAlarmName": "all-closed",
    "ResourceId": "endpoint/closed/variant/A",
    "ResourceIds": "endpoint/closed/variant/A",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    "ServiceNamespace": "sagemaker",
    "PolicyName": "p",
    "ScheduledActionName": "x",
    "VariantName": "A",
    "InstanceType": "ml.local.cpu",
    "logGroupName": "/aws/sagemaker/Endpoints/closed",
    "TopicArn": f"arn:aws:sns:{US}:{A}:t",
    "TargetArn": f"arn:aws:sns:{US}:{A}:t",
    "SubscriptionArn": f"arn:aws:sns:{US}:{A}:t:0",
    "ResourceArn": f"{ARN}:endpoint/closed",
    "ResourceARN": f"arn:aws:cloudwatch:{US}:{A}:alarm:a-closed",
    "Schedule": "cron(0 3 * * ? 2099)",
}
"""What is account A's, by the member that names it."""


def sample(shape: Any, member: str = "") -> Any:
    """A value of a shape, which names what is account A's wherever it can."""
    kind = shape.type_name
    if kind == "structure":
        needed = [*shape.required_members, *(each for each in THINGS if each in shape.members)]
        return {name: sample(shape.members[name], name) for name in needed}
    if kind == "list":
        return [sample(shape.member, member)]
    if kind == "map":
        return {}
    if kind == "string":
        values = shape.metadata.get("enum")
        return THINGS.get(member) or (values[0] if values else "x")
    if kind == "timestamp":
        return datetime(2026, 1, 1, tzinfo=UTC)
    return {"boolean": True, "blob": b"x"}.get(kind, max(1, shape.metadata.get("min", 1)))


def belongings(accounts: Accounts) -> Any:
    """What account A has, without what changes by itself."""
    sagemaker, cloudwatch = accounts.client("sagemaker", A), accounts.client("cloudwatch", A)
    scaling, sns = accounts.client("application-autoscaling", A), accounts.client("sns", A)
    alarms = cloudwatch.describe_alarms(AlarmTypes=["MetricAlarm", "CompositeAlarm"])
    return {
        "models": [each["ModelName"] for each in sagemaker.list_models()["Models"]],
        "configs": [
            each["EndpointConfigName"] for each in sagemaker.list_endpoint_configs()["EndpointConfigs"]
        ],
        "endpoints": [
            {key: each[key] for key in ("EndpointName", "EndpointStatus", "LastModifiedTime")}
            for each in sagemaker.list_endpoints()["Endpoints"]
        ],
        "definitions": sagemaker.list_data_quality_job_definitions()["JobDefinitionSummaries"],
        "schedules": [
            {key: each[key] for key in ("MonitoringScheduleName", "MonitoringScheduleStatus")}
            for each in sagemaker.list_monitoring_schedules()["MonitoringScheduleSummaries"]
        ],
        "tags": sagemaker.list_tags(ResourceArn=f"{ARN}:endpoint/closed")["Tags"],
        "alarms": {
            each["AlarmName"]: (each["ActionsEnabled"], each["AlarmConfigurationUpdatedTimestamp"])
            for each in (*alarms["MetricAlarms"], *alarms["CompositeAlarms"])
        },
        "targets": scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"],
        "policies": [
            (each["PolicyARN"], each["StepScalingPolicyConfiguration"])
            for each in scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
        ],
        "actions": scaling.describe_scheduled_actions(ServiceNamespace="sagemaker")["ScheduledActions"],
        "topics": sns.list_topics()["Topics"],
        "subscriptions": sns.list_subscriptions()["Subscriptions"],
    }


def test_no_operation_of_one_account_shows_or_changes_what_is_another_s(
    accounts: Accounts, tmp_path: Path
) -> None:
    operations = {service.name: service.operations for service in asyncio.run(services(tmp_path))}
    before = belongings(accounts)
    assert all(before[kind] for kind in before if kind != "tags")
    ran, refusals = 0, list[tuple[str, int]]()
    for service in operations.keys() - {"iam", "sts"}:  # which have nothing of an account
        client = accounts.client(service, B, config={"parameter_validation": False})
        for operation in operations[service]:
            shape = client.meta.service_model.operation_model(operation).input_shape
            try:
                answer = getattr(client, xform_name(operation))(**sample(shape))
            except ClientError as error:
                refusals.append((operation, error.response["ResponseMetadata"]["HTTPStatusCode"]))
                continue
            ran += 1
            assert A not in json.dumps(answer, default=str), operation
            assert "s-closed" not in json.dumps(answer, default=str), operation
    assert ran > 20
    assert [each for each in refusals if each[1] >= 500] == []
    assert belongings(accounts) == before


def test_models_and_jobs_cannot_read_buckets_of_another_account(accounts: Accounts, tmp_path: Path) -> None:
    archive = tmp_path / "x"
    archive.write_bytes(b"x")
    accounts.client("s3", A).upload_file(str(archive), "captured", "model.tar.gz")
    accounts.create_model(B, name="theirs", ModelDataUrl="s3://captured/model.tar.gz")
    sagemaker = accounts.client("sagemaker", B)
    sagemaker.create_endpoint_config(
        EndpointConfigName="theirs", ProductionVariants=[{**VARIANT, "ModelName": "theirs"}]
    )
    sagemaker.create_endpoint(EndpointName="theirs", EndpointConfigName="theirs")

    def described() -> Mapping[str, Any]:
        answer: Mapping[str, Any] = sagemaker.describe_endpoint(EndpointName="theirs")
        return answer

    wait_until(lambda: described()["EndpointStatus"] == "Failed")
    assert "belongs to another account" in described()["FailureReason"]
