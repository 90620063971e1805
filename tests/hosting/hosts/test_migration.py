"""A directory of a host that knew no accounts and regions is taken over, with the endpoints that run.

The files below `earlier` are what such a host left when it was killed: its tables as SQL, and the file of an instance.
"""

import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from halimede.core.ports import free_port
from halimede.hosting import migration
from halimede.hosting.control.database import DatabaseError
from halimede.hosting.identity import Scope
from halimede.hosting.migration import take_over
from halimede.hosting.substrates.processes import MARK, end_marked, start_time
from tests.hosting.substrates.instances import write_serve
from tests.support.host import HostProcess, start_host
from tests.support.waiting import wait_until

EARLIER = Path(__file__).parent / "earlier"
INSTANCE = "i-b3e2a483b7007727"
BLOB = "918938c5c3316e3e22bc55ce952d1361"
DEFAULT = Scope()


class Earlier:
    """A directory as an earlier host left it.

    Attributes:
        directory: the host's.
        process: the instance of endpoint ``e``, which still runs.
    """

    def __init__(self, place: Path) -> None:
        self.directory = place / "host"
        self.program = write_serve(place)
        self.minute = int(time.time() // 60)
        log = self.directory / "logs" / "e" / "A" / f"{INSTANCE}.log"
        instance = self.directory / "instances" / INSTANCE
        for each in (log.parent, instance / "models", self.directory / "store" / "objects" / BLOB[:2]):
            each.mkdir(parents=True)
        self.restore("state.sql", "state.db")
        self.restore("metrics.sql", "metrics.db")
        self.restore("store.sql", "store/store.sqlite")
        (self.directory / "store" / "objects" / BLOB[:2] / BLOB).write_bytes(b"an object\n")
        port = free_port()
        script = f"print('it began', flush=True); open({str(log) + '.begun'!r}, 'w').close()"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [self.program, "serve"],
                env={MARK: str(instance), "SAGEMAKER_BIND_TO_PORT": str(port), "SCRIPT": script},
                stdout=output,
                start_new_session=True,
            )
        known = {"PORT": port, "PID": self.process.pid, "DIRECTORY": instance, "PROGRAM": self.program}
        text = (EARLIER / "instance.json").read_text()
        wait_until(Path(f"{log}.begun").exists, "the begin of the instance")
        began = wait_until(lambda: start_time(self.process.pid), "its time")
        Path(f"{log}.begun").unlink()
        for name, value in {**known, "BEGAN": began}.items():
            text = text.replace(name, str(value))
        (instance / "instance.json").write_text(text)

    def restore(self, name: str, database: str) -> None:
        text = (EARLIER / name).read_text().replace("PROGRAM", str(self.program))
        with closing(sqlite3.connect(self.directory / database)) as connection:
            connection.executescript(text.replace("MINUTE", str(self.minute)))


@pytest.fixture
def earlier(tmp_path: Path) -> Iterator[Earlier]:
    found = Earlier(tmp_path)
    yield found
    end_marked(found.directory, 0.0)
    found.process.wait(60)


def names(host: HostProcess, region: str) -> tuple[list[str], ...]:
    """The models, configurations and endpoints of a region."""
    client = host.client("sagemaker", region_name=region)
    return (
        [each["ModelName"] for each in client.list_models()["Models"]],
        [each["EndpointConfigName"] for each in client.list_endpoint_configs()["EndpointConfigs"]],
        [each["EndpointName"] for each in client.list_endpoints()["Endpoints"]],
    )


def check(host: HostProcess, earlier: Earlier) -> None:
    """All is there that there was, in its account and region, and nowhere else."""
    assert names(host, "us-east-1") == (["m"], ["c-m"], ["e"])
    assert names(host, "eu-west-1") == (["n"], ["c-n"], [])

    sagemaker = host.client("sagemaker")
    described = sagemaker.describe_endpoint(EndpointName="e")
    assert described["EndpointStatus"] == "InService"
    assert described["EndpointArn"] == "arn:aws:sagemaker:us-east-1:000000000000:endpoint/e"
    tags = sagemaker.list_tags(ResourceArn=described["EndpointArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "blue"}]
    answer = host.client("sagemaker-runtime").invoke_endpoint(EndpointName="e", Body=b"x")
    assert answer["Body"].read() == b"OK"
    assert earlier.process.poll() is None
    assert [each.name for each in (earlier.directory / "instances").iterdir()] == [INSTANCE]

    s3 = host.client("s3")
    assert [each["Name"] for each in s3.list_buckets()["Buckets"]] == ["models"]
    assert s3.get_object(Bucket="models", Key="a/key")["Body"].read() == b"an object\n"

    group = "/aws/sagemaker/Endpoints/e"
    logs = host.client("logs")
    [stream] = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix="A/i-")["logStreams"]
    assert stream["logStreamName"] == f"A/{INSTANCE}"
    events = logs.get_log_events(logGroupName=group, logStreamName=f"A/{INSTANCE}", startFromHead=True)
    assert [event["message"] for event in events["events"]] == ["it began"]
    assert host.client("logs", region_name="eu-west-1").describe_log_groups()["logGroups"] == []

    now = datetime.now(UTC)
    for namespace, name, dimensions, total in (
        ("mine", "x", [], 7),
        (
            "AWS/SageMaker",
            "Invocation4XXErrors",
            [{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "A"}],
            0,
        ),
    ):
        request: dict[str, Any] = {
            "Namespace": namespace,
            "MetricName": name,
            "Dimensions": dimensions,
            "StartTime": now - timedelta(hours=1),
            "EndTime": now + timedelta(hours=1),
            "Period": 7200,
            "Statistics": ["Sum", "SampleCount"],
        }
        [point] = host.client("cloudwatch").get_metric_statistics(**request)["Datapoints"]
        assert point["Sum"] == total
        assert point["SampleCount"] >= 1
        elsewhere = host.client("cloudwatch", region_name="eu-west-1")
        assert elsewhere.get_metric_statistics(**request)["Datapoints"] == []


def test_the_next_host_goes_on_with_what_an_earlier_one_left(earlier: Earlier) -> None:
    for _ in range(2):  # the second time there is nothing to take over
        with start_host(earlier.directory, "--keep-instances") as host:
            check(host, earlier)
            assert host.process.poll() is None
    assert [each.name for each in (earlier.directory / "logs").iterdir()] == ["000000000000"]
    for name in ("state.db", "metrics.db"):
        with closing(sqlite3.connect(earlier.directory / name)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_names_are_free_in_other_regions_afterwards(earlier: Earlier) -> None:
    with start_host(earlier.directory) as host:
        client = host.client("sagemaker", region_name="eu-west-1")
        client.create_endpoint(EndpointName="e", EndpointConfigName="c-n")
        client.get_waiter("endpoint_in_service").wait(EndpointName="e", WaiterConfig={"Delay": 1})
        client.delete_endpoint(EndpointName="e")
        client.get_waiter("endpoint_deleted").wait(EndpointName="e", WaiterConfig={"Delay": 1})
        assert names(host, "eu-west-1") == (["n"], ["c-n"], [])
        answer = host.client("sagemaker-runtime").invoke_endpoint(EndpointName="e", Body=b"x")
        assert answer["Body"].read() == b"OK"
        assert earlier.process.poll() is None


@pytest.mark.parametrize(
    "step", ["_move_logs", "_complete_instances", "_take_over_metrics", "_take_over_state"]
)
def test_a_host_that_is_killed_on_the_way_does_it_again(
    earlier: Earlier, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(Exception):
        pass

    done = getattr(migration, step)
    for when in ("before", "after"):

        def killed(*values: Any, when: str = when) -> None:
            if when == "after" and step != "_take_over_state":
                done(*values)
            raise KilledError

        monkeypatch.setattr(migration, step, killed)
        with pytest.raises(KilledError):
            take_over(earlier.directory, DEFAULT)
    monkeypatch.undo()
    with start_host(earlier.directory) as host:
        check(host, earlier)


def test_resources_come_into_the_account_of_their_arn(earlier: Earlier) -> None:
    with closing(sqlite3.connect(earlier.directory / "state.db")) as connection:
        connection.execute(
            "UPDATE documents SET document = CAST(replace(CAST(document AS TEXT), ':000000000000:endpoint', "
            "':123456789012:endpoint') AS BLOB)"
        )
        connection.commit()
    take_over(earlier.directory, DEFAULT)
    with closing(sqlite3.connect(earlier.directory / "state.db")) as connection:
        found = connection.execute("SELECT kind, account, region, name FROM documents").fetchall()
    assert sorted(found) == [
        ("endpoint", "123456789012", "us-east-1", "e"),
        ("endpoint-config", "123456789012", "eu-west-1", "c-n"),
        ("endpoint-config", "123456789012", "us-east-1", "c-m"),
        ("model", "000000000000", "eu-west-1", "n"),
        ("model", "000000000000", "us-east-1", "m"),
    ]
    logs = earlier.directory / "logs" / "123456789012" / "us-east-1" / "e" / "A"
    assert [each.name for each in logs.iterdir()] == [f"{INSTANCE}.log"]
    with closing(sqlite3.connect(earlier.directory / "metrics.db")) as connection:
        found = connection.execute("SELECT DISTINCT account, namespace FROM minutes").fetchall()
    assert sorted(found) == [("000000000000", "mine"), ("123456789012", "AWS/SageMaker")]


def test_metrics_that_cannot_be_read_are_put_aside_as_before(earlier: Earlier) -> None:
    (earlier.directory / "metrics.db").write_bytes(b"this is no database, " * 100)
    with start_host(earlier.directory) as host:
        assert names(host, "us-east-1") == (["m"], ["c-m"], ["e"])
        assert (earlier.directory / "metrics.db.broken").exists()


def test_state_of_a_later_version_is_left_alone(earlier: Earlier) -> None:
    with closing(sqlite3.connect(earlier.directory / "state.db")) as connection:
        connection.execute("PRAGMA user_version = 2")
    before = sorted(earlier.directory.rglob("*"))
    with pytest.raises(DatabaseError, match="its version is 2, and this version of Halimede knows 1"):
        take_over(earlier.directory, DEFAULT)
    assert sorted(earlier.directory.rglob("*")) == before


def test_state_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"this is no database, " * 100)
    with pytest.raises(DatabaseError, match="which holds the host's state: file is not a database"):
        take_over(tmp_path, DEFAULT)
