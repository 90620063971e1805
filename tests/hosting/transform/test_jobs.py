"""Jobs complete, fail with a reason, and are stopped; they are described and listed."""

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Caller
from halimede.hosting.transform.job_record import JobRecord
from halimede.hosting.transform.state import TransformState
from halimede.http1.client import CallError
from tests.hosting.transform.fakes import CALLER, IN, OUT, World, in_world, request

ARN = "arn:aws:sagemaker:us-east-1:000000000000:transform-job/j"


@in_world
async def test_a_job_completes(world: World) -> None:
    world.objects.objects |= {f"{IN}/a.csv": b"1\n2\n", f"{IN}/b/c.csv": b"3", f"{IN}/d/": b""}
    created = await world.create(Environment={"A": "b"}, Tags=[{"Key": "team", "Value": "x"}])
    assert created == {"TransformJobArn": ARN}
    assert world.tags == {ARN: {"team": "x"}}
    described = await world.settled()
    assert world.objects.outputs == {"a.csv.out": b"1!\n2!\n", "b/c.csv.out": b"3!\n"}
    assert world.payloads == [b"1", b"2", b"3"]
    assert described["TransformJobStatus"] == "Completed"
    assert "FailureReason" not in described
    assert described["TransformJobArn"] == ARN
    assert described["ModelName"] == "m"
    assert described["Environment"] == {"A": "b"}
    assert described["TransformInput"]["CompressionType"] == "None"
    assert described["DataProcessing"] == {"InputFilter": "$", "OutputFilter": "$", "JoinSource": "None"}
    times = [described[f"{name}Time"] for name in ("Creation", "TransformStart", "TransformEnd")]
    assert times == sorted(set(times))
    assert not world.targets
    last = json.loads(next(line for line in reversed(world.told) if line.startswith("{")))
    assert (last["objects"], last["of"], last["failed"], last["records"]) == (2, 2, 0, 3)
    assert (last["bytes_in"], last["of_bytes"]) == (5, 5)
    assert world.told[-1] == "Completed"
    assert not list(world.directory.glob("transform/*"))


@in_world
async def test_a_job_is_under_way_until_its_instances_have_ended(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1\n" * 40
    await world.create()
    described = await world.describe()  # which is held for a while
    assert described["TransformJobStatus"] == "InProgress"
    assert "TransformEndTime" not in described
    [summary] = (await world.call("ListTransformJobs"))["TransformJobSummaries"]
    assert (summary["TransformJobName"], summary["TransformJobStatus"]) == ("j", "InProgress")
    assert not (await world.call("ListTransformJobs", StatusEquals="Failed"))["TransformJobSummaries"]
    await world.settled()
    [summary] = (await world.call("ListTransformJobs"))["TransformJobSummaries"]
    assert summary["TransformJobStatus"] == "Completed"
    assert summary["LastModifiedTime"] >= summary["TransformEndTime"]


@in_world
async def test_requests_are_shared_out_over_instances_so_many_at_a_time_for_each(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"".join(b"%d\n" % number for number in range(120))
    began = world.loop.time()
    await world.create(InstanceCount=3, MaxConcurrentTransforms=4)
    await world.settled()
    assert world.most == 4
    assert world.loop.time() - began < 60  # twelve at a time: ten seconds of work, and starting and ending
    assert world.objects.outputs["a.out"] == b"".join(b"%d!\n" % number for number in range(120))


@in_world
async def test_the_model_says_how_it_likes_its_requests(world: World) -> None:
    world.parameters = {"MaxConcurrentTransforms": 8, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": 1}
    world.objects.objects[f"{IN}/a"] = b"1\n" * 20
    await world.create(BatchStrategy=None)
    await world.settled()
    assert world.most == 8
    assert set(world.payloads) == {b"1"}
    assert "MaxConcurrentTransforms=8, MaxPayloadInMB=1, BatchStrategy=SingleRecord: 1 objects" in world.told


@in_world
async def test_what_the_request_says_comes_first(world: World) -> None:
    world.parameters = {
        "MaxConcurrentTransforms": "8",
        "BatchStrategy": "SINGLE_RECORD",
        "MaxPayloadInMB": True,
    }
    world.objects.objects[f"{IN}/a"] = b"1\n" * 20
    await world.create(BatchStrategy="MultiRecord", MaxConcurrentTransforms=2)
    await world.settled()
    assert world.payloads == [b"1\n" * 20]


@in_world
async def test_an_object_of_any_size_is_sent_in_chunks(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = gzip.compress(b"1\n" * 9_000_000)
    world.model = lambda body: (200, b"%d" % len(body))
    await world.create(MaxPayloadInMB=0, SplitType="None", BatchStrategy=None, CompressionType="Gzip")
    assert (await world.settled())["TransformJobStatus"] == "Completed"
    assert world.objects.outputs == {"a.out": b"18000000\n"}


@in_world
async def test_objects_that_are_not_split_are_single_records(world: World) -> None:
    world.objects.objects |= {f"{IN}/a.png": b"\n\0", f"{IN}/b.png": b"\1"}
    world.model = lambda body: (200, bytes(reversed(body)))
    await world.create(SplitType="None", AssembleWith="None", BatchStrategy="SingleRecord")
    assert (await world.settled())["TransformJobStatus"] == "Completed"
    assert world.objects.outputs == {"a.png.out": b"\0\n", "b.png.out": b"\1"}


@in_world
async def test_answers_are_put_together_as_they_are_or_as_lines(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1\n2\n"
    await world.create(AssembleWith="None")
    await world.settled()
    assert world.objects.outputs == {"a.out": b"1!2!"}
    world.model = lambda body: (200, body + b"\n")
    await world.create("k")
    await world.settled("k")
    assert world.objects.outputs == {"a.out": b"1\n2\n"}


@in_world
async def test_records_are_joined_with_answers(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"x,1\ny,2\n"
    processing = {"InputFilter": "$[1:]", "OutputFilter": "$[0,-1]", "JoinSource": "Input"}
    await world.create(ContentType="text/csv", Accept="text/csv", DataProcessing=processing)
    await world.settled()
    assert world.payloads == [b"1", b"2"]
    assert world.objects.outputs == {"a.out": b"x,1!\ny,2!\n"}


# failures


@in_world
async def test_a_prefix_without_objects(world: World) -> None:
    world.objects.objects["s3://in/other"] = b""
    reason = await world.failed()
    assert reason.startswith(
        f'ClientError: No S3 objects found under S3 URL "{IN}" given in input data source.'
    )
    assert not world.launches


@in_world
async def test_a_bucket_that_is_not_there(world: World) -> None:
    assert "Error message: there is no such bucket" in await world.failed()


@in_world
async def test_a_bucket_for_the_outputs_that_vanishes(world: World) -> None:
    world.objects.objects |= {f"{IN}/{name}": b"1" for name in range(30)}
    world.objects.refusal = ApiError("NoSuchBucket", "there is no bucket 'out'")
    reason = await world.failed()
    assert reason.startswith("ClientError: s3://in/data/")
    assert "there is no bucket 'out' (10 objects in a row failed)" in reason


@in_world
async def test_a_short_failure_of_the_bucket_is_survived(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1"
    world.objects.broken = 3
    await world.create()
    assert (await world.settled())["TransformJobStatus"] == "Completed"
    assert world.objects.writes == [f"{OUT}/a.out"]


@in_world
async def test_an_object_that_vanishes(world: World) -> None:
    world.objects.objects |= {f"{IN}/a": b"1", f"{IN}/b": b"2"}
    world.latency_s = 10
    await world.create()
    await world.until(lambda: world.payloads)
    del world.objects.objects[f"{IN}/b"]
    described = await world.settled()
    assert "s3://in/data/b: Failed to read the object" in described["FailureReason"]
    assert world.objects.outputs == {"a.out": b"1!\n"}


@in_world
async def test_a_mistake_in_one_object_fails_the_job_and_the_others_are_written(world: World) -> None:
    world.objects.objects |= {f"{IN}/{name}": name.encode() for name in "abc"}
    world.model = lambda body: (415, b"no such type") if body == b"b" else (200, body)
    reason = await world.failed()
    assert reason == "ClientError: s3://in/data/b: the model answered with status 415: no such type"
    assert world.payloads == [b"a", b"b", b"c"]  # not tried again
    assert set(world.objects.outputs) == {"a.out", "c.out"}


@in_world
async def test_errors_of_the_model_are_tried_again(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1"
    world.model = lambda _: (503, b"busy")
    reason = await world.failed(ModelClientConfig={"InvocationsMaxRetries": 2})
    assert reason == "InternalServerError: s3://in/data/a: the model answered with status 503: busy"
    assert len(world.payloads) == 3


@in_world
async def test_a_model_that_hangs(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1"

    def hang(_: bytes) -> tuple[int, bytes]:
        raise TimeoutError

    world.model = hang
    reason = await world.failed(
        ModelClientConfig={"InvocationsTimeoutInSeconds": 7, "InvocationsMaxRetries": 1}
    )
    assert reason == "InternalServerError: s3://in/data/a: the model did not answer within 7 seconds"
    assert len(world.payloads) == 2


@in_world
async def test_an_error_that_passes_is_no_failure(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1"
    world.model = lambda _: (500, b"") if len(world.payloads) < 4 else (200, b"1")
    await world.create()
    assert (await world.settled())["TransformJobStatus"] == "Completed"


@in_world
async def test_records_larger_than_a_payload(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1\n" + bytes(1 << 20) + b"1\n"
    reason = await world.failed(MaxPayloadInMB=1)
    assert (
        "s3://in/data/a: Too much data for max payload size: line 2 has more than 1,048,576 bytes" in reason
    )
    assert not world.objects.outputs


@in_world
async def test_broken_gzip(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1\n"
    reason = await world.failed(CompressionType="Gzip")
    assert reason.startswith("ClientError: s3://in/data/a: it cannot be decompressed as gzip:")


@in_world
async def test_instances_that_do_not_come_up(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1\n"
    world.refusal = ApiError("ServiceUnavailable", "it did not pass the ping health check", 503)
    assert await world.failed() == "AlgorithmError: it did not pass the ping health check"
    described = await world.describe()
    assert "TransformStartTime" not in described


@in_world
async def test_instances_without_room(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1\n"
    world.refusal = ApiError("ResourceLimitExceeded", "there is no room")
    assert await world.failed() == "CapacityError: there is no room"


@in_world
async def test_an_instance_that_dies_is_replaced_and_its_requests_done_again(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1\n2\n3\n4\n"
    await world.create(MaxConcurrentTransforms=2)
    await world.until(lambda: len(world.payloads) >= 3)
    [(target, fleet)] = world.targets.items()
    fleet.kill(target)
    assert (await world.settled())["TransformJobStatus"] == "Completed"
    assert world.objects.outputs == {"a.out": b"1!\n2!\n3!\n4!\n"}
    assert len(world.payloads) > 4


@in_world
async def test_a_record_that_ends_every_instance(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1\n"

    def model(_: bytes) -> tuple[int, bytes]:
        [(target, fleet)] = world.targets.items()
        fleet.kill(target)
        raise CallError("the connection was closed before the response was complete")

    world.model = model
    reason = await world.failed()
    assert "s3://in/data/a: the model gave no answer: the connection was closed" in reason
    assert len(world.payloads) == 4


@in_world
async def test_a_job_without_any_instance_is_given_up(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1\n" * 10
    await world.create()
    await world.until(lambda: world.payloads)
    [(target, fleet)] = world.targets.items()
    fleet.kill(target, replaced=False)
    described = await world.settled()
    assert described["FailureReason"].startswith(
        "InternalServerError: there has been no instance for 900 seconds"
    )


# manifests


@in_world
async def test_a_manifest_names_the_objects(world: World) -> None:
    world.objects.objects |= {
        "s3://in/list": b'[{"prefix": "s3://in/some/"}, "x/a", "b", "b"]',
        "s3://in/some/x/a": b"1",
        "s3://in/some/b": b"2",
        "s3://in/some/c": b"3",
    }
    await world.create(S3DataType="ManifestFile", S3Uri="s3://in/list")
    assert (await world.settled())["TransformJobStatus"] == "Completed"
    assert world.objects.outputs == {"x/a.out": b"1!\n", "b.out": b"2!\n"}


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        (b"[", "it is no JSON"),
        (b"{}", 'it has to be a list that begins with {"prefix": "s3://BUCKET/PREFIX"}'),
        (b"[]", "it has to be a list that begins with"),
        (b'["a"]', "it has to be a list that begins with"),
        (b'[{"prefix": "file:///x"}, "a"]', "it has to be a list that begins with"),
        (b'[{"prefix": "s3://in/"}, 7]', "all entries after the first one have to be keys"),
        (b'[{"prefix": "s3://in/"}]', "it names no objects"),
        (b'[{"prefix": "s3://in/"}, "missing"]', "s3://in/missing: Failed to read the object"),
    ],
)
def test_manifests_that_cannot_be_used(
    manifest: bytes, text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @in_world
    async def fails(world: World) -> None:
        world.objects.objects["s3://in/list"] = manifest
        reason = await world.failed(S3DataType="ManifestFile", S3Uri="s3://in/list")
        assert reason.startswith("ClientError: ")
        assert text in reason

    fails(tmp_path_factory.mktemp("manifest"))


@in_world
async def test_a_manifest_that_is_not_there(world: World) -> None:
    reason = await world.failed(S3DataType="ManifestFile", S3Uri="s3://in/list")
    assert reason.startswith(
        "ClientError: the manifest cannot be read: Failed to read the object s3://in/list"
    )


# stopping


@in_world
async def test_a_job_that_is_stopped(world: World) -> None:
    world.objects.objects |= {f"{IN}/a": b"1", f"{IN}/b": b"2\n" * 100}
    await world.create()
    await world.until(lambda: len(world.payloads) >= 10)
    assert await world.call("StopTransformJob", TransformJobName="j") == {}
    [summary] = (await world.call("ListTransformJobs"))["TransformJobSummaries"]
    assert summary["TransformJobStatus"] == "Stopping"
    await world.call("StopTransformJob", TransformJobName="j")
    described = await world.settled()
    assert described["TransformJobStatus"] == "Stopped"
    assert described["TransformEndTime"]
    assert not world.targets
    assert set(world.objects.outputs) == {"a.out"}
    with pytest.raises(ApiError, match=r"because the transform job is in status Stopped\."):
        await world.call("StopTransformJob", TransformJobName="j")


@in_world
async def test_a_job_that_is_stopped_before_it_has_instances(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1"
    await world.create()
    await asyncio.sleep(1)  # sleeps: in virtual time
    await world.call("StopTransformJob", TransformJobName="j")
    assert (await world.settled())["TransformJobStatus"] == "Stopped"
    assert not world.payloads


# restarts


@in_world
async def test_a_job_goes_on_after_a_restart(world: World) -> None:
    names = [f"{number:02}" for number in range(20)]
    world.objects.objects |= {f"{IN}/{name}": name.encode() for name in names}
    await world.create()
    await world.until(lambda: len(world.objects.writes) >= 7)
    created = (await world.call("ListTransformJobs"))["TransformJobSummaries"]
    await world.restart()
    world.objects.objects[f"{IN}/99"] = b"later"  # not of this job
    again = (await world.call("ListTransformJobs"))["TransformJobSummaries"]
    assert again[0]["CreationTime"] == created[0]["CreationTime"]
    assert (await world.settled())["TransformJobStatus"] == "Completed"
    assert world.objects.outputs == {f"{name}.out": f"{name}!\n".encode() for name in names}
    assert len(world.objects.writes) == len(set(world.objects.writes)) == 20


@in_world
async def test_a_large_object_goes_on_where_it_was(world: World) -> None:
    lines = [b"%d" % number for number in range(100)]
    world.objects.objects[f"{IN}/a"] = b"\n".join(lines)
    await world.create()
    await world.until(lambda: len(world.payloads) >= 60)
    await world.restart()
    assert (await world.settled())["TransformJobStatus"] == "Completed"
    assert world.objects.outputs == {"a.out": b"".join(line + b"!\n" for line in lines)}
    assert len(world.payloads) < 110
    last = json.loads(next(line for line in reversed(world.told) if line.startswith("{")))
    assert (last["records"], last["bytes_in"]) == (100, len(b"\n".join(lines)))


@in_world
async def test_an_object_that_has_changed_is_begun_anew(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1\n" * 50
    await world.create()
    await world.until(lambda: len(world.payloads) >= 30)
    world.objects.objects[f"{IN}/a"] = b"2\n" * 50
    await world.restart()
    assert (await world.settled())["TransformJobStatus"] == "Completed"
    assert world.objects.outputs == {"a.out": b"2!\n" * 50}


@in_world
async def test_an_output_that_has_got_lost_is_begun_anew(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1\n" * 50
    await world.create()
    await world.until(lambda: len(world.payloads) >= 30)
    await world.transforms.stop()
    [output] = world.directory.glob("transform/*/*.out")
    [checkpoint] = world.directory.glob("transform/*/*.checkpoint")
    output.unlink()
    (checkpoint.parent / "in-1").write_bytes(b"left by a host that was killed")
    await world.start()
    assert (await world.settled())["TransformJobStatus"] == "Completed"
    assert world.objects.outputs == {"a.out": b"1!\n" * 50}
    assert not list(world.directory.glob("transform/*"))


@in_world
async def test_settled_jobs_stay_as_they_are(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1"
    await world.create()
    before = await world.settled()
    (world.directory / "transform" / "f-of-another-one").mkdir()
    await world.restart()
    assert not list(world.directory.glob("transform/*"))
    assert await world.describe() == before
    assert not world.transforms.fleets()


# refusals


@in_world
async def test_what_cannot_be_done_is_refused(world: World) -> None:
    assert "MaxPayloadInMB is 101; it may be at most 100" in await world.refused(MaxPayloadInMB=101)
    assert "MaxConcurrentTransforms 51 times MaxPayloadInMB 2 is 102 MB" in await world.refused(
        MaxConcurrentTransforms=51, MaxPayloadInMB=2
    )
    assert "InvocationsTimeoutInSeconds is 3601" in await world.refused(
        ModelClientConfig={"InvocationsTimeoutInSeconds": 3601}
    )
    assert "InvocationsMaxRetries is 4" in await world.refused(ModelClientConfig={"InvocationsMaxRetries": 4})
    assert "InstanceCount is 101" in await world.refused(InstanceCount=101)
    assert "'https://x/y' is no URL that this version knows" in await world.refused(S3Uri="https://x/y")
    assert "names no manifest" in await world.refused(S3Uri="s3://in", S3DataType="ManifestFile")
    assert "S3DataType Converse is not available" in await world.refused(S3DataType="Converse")
    assert "DataCaptureConfig: data capture of transform jobs" in await world.refused(
        DataCaptureConfig={"DestinationS3Uri": OUT}
    )
    assert "is no header's value" in await world.refused(ContentType="text/csv\rX: y")
    assert "'$[' is no JSONPath" in await world.refused(DataProcessing={"InputFilter": "$["})
    assert 'Could not find model "n"' in await world.refused(ModelName="n")
    world.models["many"] = {"PrimaryContainer": {"Image": "x", "Mode": "MultiModel"}}
    assert "model 'many' is of Mode MultiModel" in await world.refused(ModelName="many")


@in_world
async def test_names_are_unique(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1"
    await world.create()
    with pytest.raises(ApiError, match="a job with this name already exists") as raised:
        await world.create("J")
    assert raised.value.code == "ResourceInUse"
    with pytest.raises(ApiError, match="Could not find transform job") as raised:
        await world.describe("other")
    assert raised.value.code == "ResourceNotFound"
    await world.settled()


@in_world
async def test_jobs_of_other_accounts_and_regions_are_not_seen(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1"
    await world.create()
    operations = world.transforms.operations()
    for other in (Caller(account="111111111111"), Caller(region="eu-west-1")):
        assert (await operations["ListTransformJobs"]({}, other))["TransformJobSummaries"] == []
        for name in ("DescribeTransformJob", "StopTransformJob"):
            with pytest.raises(ApiError, match="Could not find transform job"):
                await operations[name]({"TransformJobName": "j"}, other)
        assert not await world.transforms.has_made(ARN, other.scope)
        assert (await operations["CreateTransformJob"](request(), other))["TransformJobArn"] != ARN
    assert (await world.settled())["TransformJobStatus"] == "Completed"


@in_world
async def test_settled_jobs_take_no_memory_and_are_known_nevertheless(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1"
    for number in range(3):
        await world.create(f"job-{number}")
        await world.settled(f"job-{number}")
        assert not world.transforms._state.unsettled  # noqa: SLF001 - memory is not to grow
        assert len(world.transforms._jobs) <= 1  # noqa: SLF001 - memory is not to grow
    await world.restart()
    assert not world.transforms._state.unsettled  # noqa: SLF001 - memory is not to grow
    summaries = (await world.call("ListTransformJobs", SortOrder="Ascending"))["TransformJobSummaries"]
    assert [each["TransformJobName"] for each in summaries] == ["job-0", "job-1", "job-2"]
    assert (await world.describe("job-1"))["ModelName"] == "m"
    assert await world.transforms.has_made(f"{ARN.removesuffix('j')}job-1", CALLER.scope)
    assert not await world.transforms.has_made(f"{ARN.removesuffix('j')}job-3", CALLER.scope)
    with pytest.raises(ApiError, match="already exists"):
        await world.create("JOB-1")
    with pytest.raises(ApiError, match="is in status Completed"):
        await world.call("StopTransformJob", TransformJobName="job-1")


@in_world
async def test_of_two_jobs_of_one_name_that_are_created_at_once_one_is_made(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1"
    outcomes = await asyncio.gather(world.create("j"), world.create("J"), return_exceptions=True)
    assert [type(each) for each in outcomes].count(ApiError) == 1
    await world.settled("j" if isinstance(outcomes[0], dict) else "J")


@pytest.mark.parametrize("status", ["InProgress", "Completed"])
def test_a_job_settles_though_it_cannot_be_written_down_for_reasons_that_nobody_foresaw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: str
) -> None:
    put, failures = TransformState.put, [RuntimeError("unforeseen")]

    async def fail(state: TransformState, record: JobRecord) -> None:
        if failures and record.outcome and record.status == status:
            raise failures.pop()
        await put(state, record)

    monkeypatch.setattr(TransformState, "put", fail)

    @in_world
    async def settles(world: World) -> None:
        world.objects.objects[f"{IN}/a"] = b"1\n"
        await world.create()
        assert (await world.settled())["TransformJobStatus"] == "Completed"

    settles(tmp_path)
    assert not failures
    assert "transform job 'j' cannot be written down" in caplog.messages


def test_a_job_settles_though_its_reports_and_its_end_fail_in_ways_that_nobody_foresaw(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failing = {"waits: no room", "Completed"}

    class Told(list[str]):
        def append(self, line: str) -> None:
            if line in failing:
                failing.remove(line)
                raise RuntimeError("unforeseen")
            super().append(line)

    @in_world
    async def settles(world: World) -> None:
        world.told, world.shortage = Told(), "no room"
        world.objects.objects[f"{IN}/a"] = b"1\n"
        await world.create()
        await world.until(lambda: len(failing) == 1)
        world.shortage = ""
        await world.until(lambda: not failing)
        assert (await world.settled())["TransformJobStatus"] == "Completed"
        await world.until(lambda: "Completed" in world.told)

    settles(tmp_path)
    assert "reporting a transform job failed; it is started again in 0.5 s" in caplog.messages
    assert "working on transform job 'j' failed; it is started again in 0.5 s" in caplog.messages
