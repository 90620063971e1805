"""A whole host with two routers, as its users see it."""

import hashlib
import os
import signal
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from halimede.hosting.substrates.processes import descendants, end_marked
from tests.frontends.http.serving import Client
from tests.hosting.substrates.instances import write_serve
from tests.support.host import HostProcess, start_host
from tests.support.waiting import wait_until

ROLE = "arn:aws:iam::000000000000:role/halimede"
KEYS = '[keys.AKIDEXAMPLE]\nsecret = "right"\n[keys.AKIDOTHER]\nsecret = "right"\nendpoints = ["other"]\n'


@contextmanager
def prepared(directory: Path) -> Iterator[Path]:
    """The directory with an archive and a program, and one for the host, of which nothing runs in the end."""
    (directory / "bucket").mkdir()
    (directory / "config.pbtxt").write_text('backend: "x"')
    with tarfile.open(directory / "bucket" / "model.tar.gz", "w:gz") as archive:
        archive.add(directory / "config.pbtxt", "m/config.pbtxt")
    write_serve(directory)
    (directory / "keys.toml").write_text(KEYS)
    yield directory
    end_marked(directory / "host", 0.0)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory for a host of the test's own."""
    with prepared(tmp_path) as directory:
        yield directory


@pytest.fixture(scope="module")
def shared_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory for the host that most tests share."""
    with prepared(tmp_path_factory.mktemp("shared")) as directory:
        yield directory


@pytest.fixture(scope="module")
def shared_host(shared_place: Path) -> Iterator[HostProcess]:
    with start_host(
        shared_place / "host", *flags(shared_place), "--allow-origin=https://app.example"
    ) as host:
        yield host


@pytest.fixture
def host(shared_host: HostProcess) -> Iterator[HostProcess]:
    """The host that most tests share, without an endpoint."""
    yield shared_host
    clear(shared_host.client("sagemaker"))


@pytest.fixture(scope="module")
def keyed_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory for the host that verifies signatures."""
    with prepared(tmp_path_factory.mktemp("keyed")) as directory:
        yield directory


@pytest.fixture(scope="module")
def shared_keyed_host(keyed_place: Path) -> Iterator[HostProcess]:
    with start_host(keyed_place / "host", *flags(keyed_place), f"--keys={keyed_place / 'keys.toml'}") as host:
        yield host


@pytest.fixture
def keyed_host(shared_keyed_host: HostProcess) -> Iterator[HostProcess]:
    """A host that verifies signatures, without an endpoint."""
    yield shared_keyed_host
    clear(with_key(shared_keyed_host, "sagemaker"))


def with_key(host: HostProcess, service: str, key: str = "AKIDEXAMPLE", secret: str = "right") -> Any:
    """A client that signs."""
    return host.another_client(service, aws_access_key_id=key, aws_secret_access_key=secret)


def clear(sagemaker: Any) -> None:
    """Delete the endpoint, and what `configure` has made."""
    for each in sagemaker.list_endpoints()["Endpoints"]:
        sagemaker.delete_endpoint(EndpointName=each["EndpointName"])
    wait_until(lambda: not sagemaker.list_endpoints()["Endpoints"], "the endpoint to be gone")
    for each in sagemaker.list_endpoint_configs()["EndpointConfigs"]:
        sagemaker.delete_endpoint_config(EndpointConfigName=each["EndpointConfigName"])
    for each in sagemaker.list_models()["Models"]:
        sagemaker.delete_model(ModelName=each["ModelName"])


def flags(place: Path) -> tuple[str, ...]:
    return ("--router-processes=2", f"--bucket=models={place / 'bucket'}", "--describe-hold=5")


def configure(sagemaker: Any, place: Path, script: str = "") -> None:
    """Make a model, and configurations ``c1`` and ``c2`` of so many instances."""
    container = {
        "Image": str(place / "serve-program"),
        "ModelDataUrl": "s3://models/model.tar.gz",
        "Environment": {"SCRIPT": script},
    }
    sagemaker.create_model(ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer=container)
    for count in (1, 2):
        variant = {
            "VariantName": "A",
            "ModelName": "m",
            "InstanceType": "ml.local.cpu",
            "InitialInstanceCount": count,
        }
        sagemaker.create_endpoint_config(EndpointConfigName=f"c{count}", ProductionVariants=[variant])


def settled(sagemaker: Any, name: str = "e") -> dict[str, Any]:
    """The endpoint when nothing is done to it any more."""

    def described() -> dict[str, Any] | None:
        found: dict[str, Any] = sagemaker.describe_endpoint(EndpointName=name)
        return found if found["EndpointStatus"] in ("InService", "Failed") else None

    found = wait_until(described, "the endpoint to settle")
    assert found is not None
    return found


def routers(host: HostProcess) -> list[int]:
    """The processes."""
    found = []
    for child in descendants(host.process.pid)[1:]:
        with suppress(OSError):
            if b"halimede.hosting.routers.process" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class TestAnEndpoint:
    def test_its_life(self, host: HostProcess, shared_place: Path) -> None:
        sagemaker, runtime = host.client("sagemaker"), host.client("sagemaker-runtime")
        configure(sagemaker, shared_place)
        sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c1")
        assert settled(sagemaker)["EndpointStatus"] == "InService"
        for _ in range(10):
            assert runtime.invoke_endpoint(EndpointName="e", Body=b"x")["Body"].read() == b"OK"
        sagemaker.delete_endpoint(EndpointName="e")
        wait_until(lambda: not sagemaker.list_endpoints()["Endpoints"])
        with pytest.raises(ClientError, match="Endpoint e of account 000000000000 not found"):
            runtime.invoke_endpoint(EndpointName="e", Body=b"x")

    def test_it_is_known_to_every_router_when_it_is_in_service(
        self, host: HostProcess, shared_place: Path
    ) -> None:
        sagemaker = host.client("sagemaker")
        clients = [host.another_client("sagemaker-runtime") for _ in range(4)]
        configure(sagemaker, shared_place)
        for client in clients:  # so that each router has some of the connections
            with pytest.raises(ClientError, match="not found"):
                client.invoke_endpoint(EndpointName="e", Body=b"x")
        for _ in range(3):
            sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c1")
            assert settled(sagemaker)["EndpointStatus"] == "InService"
            for client in clients:
                assert client.invoke_endpoint(EndpointName="e", Body=b"x")["Body"].read() == b"OK"
            sagemaker.delete_endpoint(EndpointName="e")
            wait_until(lambda: not sagemaker.list_endpoints()["Endpoints"])

    def test_an_update_under_load_fails_no_request(self, host: HostProcess, shared_place: Path) -> None:
        sagemaker = host.client("sagemaker")
        configure(sagemaker, shared_place)
        sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c1")
        settled(sagemaker)
        stopped, answers, failures = threading.Event(), [0], []

        def run() -> None:
            client = host.another_client("sagemaker-runtime")
            while not stopped.is_set():
                try:
                    client.invoke_endpoint(EndpointName="e", Body=b"x")["Body"].read()
                except (ClientError, BotoCoreError) as error:
                    failures.append(repr(error))
                answers[0] += 1
                stopped.wait(0.01)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for each in threads:
            each.start()
        try:
            for config in ("c2", "c1", "c2"):
                sagemaker.update_endpoint(EndpointName="e", EndpointConfigName=config)
                assert settled(sagemaker)["EndpointConfigName"] == config
            seen = answers[0]
            wait_until(lambda: answers[0] > seen + 50)
        finally:
            stopped.set()
            for each in threads:
                each.join(60)
        assert failures == []

    def test_requests_of_all_routers_are_in_its_metrics(self, host: HostProcess, shared_place: Path) -> None:
        with ThreadPoolExecutor(6) as threads:
            sagemaker, cloudwatch = host.client("sagemaker"), host.client("cloudwatch")
            configure(sagemaker, shared_place)
            name = f"counted-{uuid4().hex}"  # metrics outlive endpoints
            sagemaker.create_endpoint(EndpointName=name, EndpointConfigName="c1")
            settled(sagemaker, name)
            clients = [host.another_client("sagemaker-runtime") for _ in range(6)]

            def run(number: int) -> None:
                clients[number % 6].invoke_endpoint(EndpointName=name, Body=b"x")["Body"].read()

            list(threads.map(run, range(300)))
            now = datetime.now(UTC)

            def statistic(metric: str, **what: Any) -> list[dict[str, Any]]:
                points: list[dict[str, Any]] = cloudwatch.get_metric_statistics(
                    Namespace="AWS/SageMaker",
                    MetricName=metric,
                    Dimensions=[
                        {"Name": "EndpointName", "Value": name},
                        {"Name": "VariantName", "Value": "A"},
                    ],
                    StartTime=now - timedelta(minutes=10),
                    EndTime=now + timedelta(minutes=10),
                    Period=3600,
                    **what,
                )["Datapoints"]
                return points

            def total() -> float:
                return float(sum(point["Sum"] for point in statistic("Invocations", Statistics=["Sum"])))

            wait_until(lambda: total() == 300)
            counted = statistic("ModelLatency", Statistics=["SampleCount", "Maximum"])
            assert sum(point["SampleCount"] for point in counted) == 300
            slow = statistic("ModelLatency", ExtendedStatistics=["p99"])
            assert 0 < slow[0]["ExtendedStatistics"]["p99"] <= max(point["Maximum"] for point in counted)


class TestObjects:
    def test_50_megabytes_go_there_and_back(self, host: HostProcess) -> None:
        data = os.urandom(50_000_000)
        s3 = host.client("s3")
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="k", Body=data)
        got = s3.get_object(Bucket="bucket", Key="k")["Body"].read()
        assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()


class TestKeys:
    def test_signatures_are_verified_in_routers(self, keyed_host: HostProcess, keyed_place: Path) -> None:
        sagemaker = with_key(keyed_host, "sagemaker")
        configure(sagemaker, keyed_place)
        sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c1")
        settled(sagemaker)
        for key, secret, refusal in (
            ("AKIDEXAMPLE", "right", ""),
            ("AKIDEXAMPLE", "wrong", "InvalidSignatureException"),
            ("AKIDNOBODY", "right", "UnrecognizedClientException"),
            ("AKIDOTHER", "right", "AccessDeniedException"),
        ):
            for _ in range(2):  # one connection each, of one router and of the other
                runtime = with_key(keyed_host, "sagemaker-runtime", key, secret)
                if not refusal:
                    assert runtime.invoke_endpoint(EndpointName="e", Body=b"x")["Body"].read() == b"OK"
                    continue
                with pytest.raises(ClientError) as caught:
                    runtime.invoke_endpoint(EndpointName="e", Body=b"x")
                assert caught.value.response["Error"]["Code"] == refusal
        assert "denied: POST /endpoints/e/invocations" in keyed_host.log

    def test_the_keys_of_instances_come_and_go(self, keyed_host: HostProcess, keyed_place: Path) -> None:
        script = (
            "names = 'AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN'\n"
            "open('/tmp/credentials', 'w').write(' '.join(os.environ[name] for name in names))\n"
            "import http.server\n"
            "class Handler(http.server.BaseHTTPRequestHandler):\n"
            "    def do_GET(self):\n"
            "        self.send_response(200); self.send_header('Content-Length', '0'); self.end_headers()\n"
            "    def do_POST(self):\n"
            "        body = open('/tmp/credentials', 'rb').read()\n"
            "        self.send_response(200); self.send_header('Content-Length', str(len(body)))\n"
            "        self.end_headers(); self.wfile.write(body)\n"
            "port = int(os.environ['SAGEMAKER_BIND_TO_PORT'])\n"
            "http.server.ThreadingHTTPServer(('127.0.0.1', port), Handler).serve_forever()\n"
        )
        sagemaker = with_key(keyed_host, "sagemaker")
        configure(sagemaker, keyed_place, script)
        sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c1")
        assert settled(sagemaker)["EndpointStatus"] == "InService"
        runtime = with_key(keyed_host, "sagemaker-runtime")
        body = runtime.invoke_endpoint(EndpointName="e", Body=b"x")["Body"].read()
        key, secret, token = body.decode().split()

        def of_instance() -> Any:
            return keyed_host.another_client(
                "sagemaker-runtime",
                aws_access_key_id=key,
                aws_secret_access_key=secret,
                aws_session_token=token,
            )

        for _ in range(2):
            assert of_instance().invoke_endpoint(EndpointName="e", Body=b"x")["Body"].read() == body
        sagemaker.delete_endpoint(EndpointName="e")
        wait_until(lambda: not sagemaker.list_endpoints()["Endpoints"])
        for _ in range(2):
            with pytest.raises(ClientError, match="UnrecognizedClientException"):
                of_instance().invoke_endpoint(EndpointName="e", Body=b"x")


class TestWebPages:
    def test_what_a_page_must_not_do_is_refused_by_routers_too(self, host: HostProcess) -> None:
        port = int(host.url.rpartition(":")[2])
        denied = "denied: POST /endpoints/none/invocations of 127.0.0.1"
        before = host.log.count(denied)
        with Client(port) as client:
            for name, origin, status, code in (
                ("evil.example", "", 403, b"AccessDenied"),
                ("localhost", "https://evil.example", 403, b"AccessDenied"),
                ("localhost", "https://app.example", 400, b"not found"),
                ("localhost", "", 400, b"not found"),
            ):
                header = f"Origin: {origin}\r\n" if origin else ""
                answer = client.ask(
                    f"POST /endpoints/none/invocations HTTP/1.1\r\nHost: {name}\r\n{header}"
                    f"Content-Length: 0\r\n\r\n".encode()
                )
                assert answer.status == status
                assert code in answer.body
                allowed = answer.headers.get("access-control-allow-origin")
                assert allowed == (origin if "app" in origin else None)
        wait_until(lambda: host.log.count(denied) == before + 2)


class TestProcesses:
    def test_a_router_that_is_killed_is_started_again(self, place: Path) -> None:
        with start_host(place / "host", *flags(place)) as host:
            before = routers(host)
            assert len(before) == 2
            os.kill(before[0], signal.SIGKILL)
            wait_until(lambda: len(routers(host)) == 2 and before[0] not in routers(host))
            wait_until(lambda: f"router process {before[0]} has ended; another one is started" in host.log)

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
    def test_routers_end_with_the_host(self, place: Path, number: signal.Signals) -> None:
        with start_host(place / "host", *flags(place)) as host:
            before = routers(host)
            assert len(before) == 2
            host.stop(number)
            wait_until(lambda: all(is_gone(each) for each in before))

    def test_signals_of_a_terminal_reach_the_routers_too_and_end_them_in_order(self, place: Path) -> None:
        with start_host(place / "host", *flags(place)) as host:
            assert len(routers(host)) == 2
            for each in (*routers(host), host.process.pid):
                os.kill(each, signal.SIGINT)
            assert host.process.wait(30) == 0
            assert "has ended" not in host.log

    def test_instances_that_were_kept_are_found_again(self, place: Path) -> None:
        with start_host(place / "host", *flags(place), "--keep-instances") as host:
            sagemaker = host.client("sagemaker")
            configure(sagemaker, place)
            sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c1")
            settled(sagemaker)
            host.stop(signal.SIGKILL)
        with start_host(place / "host", *flags(place)) as host:
            assert settled(host.client("sagemaker"))["EndpointStatus"] == "InService"
            runtime = host.client("sagemaker-runtime")
            assert runtime.invoke_endpoint(EndpointName="e", Body=b"x")["Body"].read() == b"OK"
