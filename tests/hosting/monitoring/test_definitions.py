"""Data-quality job definitions."""

from typing import Any

import pytest

from tests.hosting.monitoring.serving import INPUT, OUTPUT, Monitored, definition

ARN = "arn:aws:sagemaker:us-east-1:000000000000:data-quality-job-definition/d"


def test_a_definition_is_described_as_it_was_made(host: Monitored) -> None:
    answer = host.client().describe_data_quality_job_definition(JobDefinitionName="d")
    assert answer["JobDefinitionArn"] == ARN
    request = definition()
    assert {member: answer[member] for member in request} == request
    host.restart()
    assert (
        host.client().describe_data_quality_job_definition(JobDefinitionName="d")["RoleArn"]
        == request["RoleArn"]
    )


def test_a_name_is_given_once(host: Monitored) -> None:
    code, text = host.refused("create_data_quality_job_definition", **definition("D"))
    assert code == "ResourceInUse"
    assert text == f'Cannot create already existing data quality job definition "{ARN}".'


def test_definitions_are_listed_and_deleted(host: Monitored) -> None:
    client = host.client()
    inputs = {"EndpointInput": {**INPUT["EndpointInput"], "EndpointName": "other"}}
    client.create_data_quality_job_definition(**definition("d2", DataQualityJobInput=inputs))

    def names(**request: Any) -> list[str]:
        found = client.list_data_quality_job_definitions(**request)["JobDefinitionSummaries"]
        return [each["MonitoringJobDefinitionName"] for each in found]

    assert sorted(names()) == ["d", "d2"]
    assert names(EndpointName="other") == ["d2"]
    assert names(NameContains="2") == ["d2"]
    client.delete_data_quality_job_definition(JobDefinitionName="d2")
    assert names() == ["d"]
    code, text = host.refused("describe_data_quality_job_definition", JobDefinitionName="d2")
    assert (code, text) == ("ResourceNotFound", f'Could not find data quality job definition "{ARN}2".')


def test_accounts_do_not_see_each_other_s(host: Monitored) -> None:
    other = host.client(region_name="eu-west-1")
    assert other.list_data_quality_job_definitions()["JobDefinitionSummaries"] == []


@pytest.mark.parametrize(
    ("further", "said"),
    [
        (
            {
                "DataQualityJobInput": {
                    "BatchTransformInput": {
                        "DataCapturedDestinationS3Uri": "s3://b/p",
                        "DatasetFormat": {"Csv": {}},
                        "LocalPath": "/in",
                    }
                }
            },
            (
                "BatchTransformInput: monitoring of batch transform jobs is not available in this version; use "
                "EndpointInput"
            ),
        ),
        ({"DataQualityJobInput": {}}, "The job has no input: EndpointInput must be given"),
        (
            {
                "DataQualityAppSpecification": {
                    "ImageUri": "i",
                    "RecordPreprocessorSourceUri": "s3://b/p.py",
                }
            },
            (
                "RecordPreprocessorSourceUri: the image's container is not run, a built-in job is, which calls no "
                "scripts; leave it out"
            ),
        ),
        (
            {
                "DataQualityJobOutputConfig": {
                    "MonitoringOutputs": [
                        {"S3Output": {"S3Uri": "https://example/x", "LocalPath": "/out"}},
                    ]
                }
            },
            "The S3Uri of the output, 'https://example/x', is no URL of a bucket; expected s3://BUCKET/PREFIX",
        ),
    ],
)
def test_what_no_job_here_does_is_refused(host: Monitored, further: Any, said: str) -> None:
    code, text = host.refused("create_data_quality_job_definition", **definition("x", **further))
    assert (code, text) == ("ValidationException", said)


def test_other_kinds_of_monitoring_are_refused_by_name(host: Monitored) -> None:
    code, text = host.refused(
        "create_model_quality_job_definition",
        JobDefinitionName="m",
        ModelQualityAppSpecification={"ImageUri": "i"},
        ModelQualityJobInput={"GroundTruthS3Input": {}},
        ModelQualityJobOutputConfig=OUTPUT,
        JobResources={},
        RoleArn="r",
    )
    assert code == "UnknownOperationException"
    assert text.startswith("CreateModelQualityJobDefinition is not available in this version. Available are ")
    assert "CreateDataQualityJobDefinition" in text


def test_definitions_and_schedules_have_tags(host: Monitored) -> None:
    client = host.client()
    tags = [{"Key": "team", "Value": "risk"}]
    client.create_data_quality_job_definition(**definition("t", Tags=tags))
    arn = ARN[:-1] + "t"
    assert client.list_tags(ResourceArn=arn)["Tags"] == tags
    client.add_tags(ResourceArn=arn, Tags=[{"Key": "a", "Value": "b"}])
    client.delete_tags(ResourceArn=arn, TagKeys=["team"])
    assert client.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "a", "Value": "b"}]
    assert host.refused("list_tags", ResourceArn=ARN[:-1] + "none") == (
        "ValidationException",
        "somebody else's",
    )
    assert client.list_tags(ResourceArn=host.schedule())["Tags"] == []
