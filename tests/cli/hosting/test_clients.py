"""The commands that look at a host: `endpoints`, `models`, `invoke`, `logs`."""

import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import create_loader

from halimede.cli.main import main
from halimede.hosting.access.keys import Key
from halimede.hosting.errors import invalid
from tests.cli.hosting.test_host import create_endpoint
from tests.hosting.api.serving import ACCESS_KEY, ACCOUNT, SECRET, api_host
from tests.hosting.instances import Received, Reply, fake_instance
from tests.support.commands import call_command, call_text_command
from tests.support.host import HostProcess, start_host
from tests.support.names import new_name
from tests.support.program import write_program
from tests.support.waiting import wait_until


@pytest.fixture(scope="module", autouse=True)
def one_loader() -> Iterator[None]:
    """All sessions of boto3 share what they read of services' descriptions: a tenth of a second for each command."""
    loader = create_loader()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", lambda _path: loader)
        yield


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host with the endpoint `e`."""
    directory = tmp_path_factory.mktemp("clients")
    with start_host(directory / "host") as running:
        create_endpoint(running, write_program(directory))
        yield running


def environment_of(port: int) -> dict[str, str]:
    """The environment of a command for a host that listens there."""
    return {
        **os.environ,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }


def ask(host: HostProcess, *arguments: str, body: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """What a command printed that has the host's variables in its environment, and nothing else of AWS."""
    return call_command(*arguments, environment=host.environment, given=body)


def cells(printed: str) -> list[list[str]]:
    """The rows of tables; a long cell goes on in further rows."""
    rows = [line for line in printed.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]


def reason(printed: str) -> str:
    """Why the only endpoint of a table has failed."""
    return " ".join(row[-1] for row in cells(printed)[1:])


def test_endpoints_are_listed_with_their_variants(host: HostProcess) -> None:
    shown = ask(host, "endpoints")

    assert shown.returncode == 0
    [heading, *rows] = cells(shown.stdout.decode())
    assert heading == [
        "Endpoint", "Status", "Configuration", "Variant", "Weight", "Instances", "Created", "Reason",
    ]  # fmt: skip
    [row] = [each for each in rows if each[0] == "e"]
    assert row[:6] == ["e", "InService", "c", "v", "1", "2/2"]


def test_one_endpoint_is_described(host: HostProcess) -> None:
    shown = ask(host, "endpoints", "e")
    assert shown.returncode == 0
    assert b"| e        | InService | c " in shown.stdout


def test_missing_endpoint_is_told_in_one_line(host: HostProcess) -> None:
    for arguments in (["endpoints", "no"], ["endpoints", "no", "--wait"]):
        shown = ask(host, *arguments)
        assert shown.returncode == 1
        assert shown.stderr == (
            b'halimede: Could not find endpoint "arn:aws:sagemaker:us-east-1:000000000000:endpoint/no".\n'
        )


def test_waiting_needs_a_name(host: HostProcess) -> None:
    shown = ask(host, "endpoints", "--wait")
    assert shown.stderr == b"halimede: --wait needs the NAME of an endpoint\n"


def script(directory: Path, *lines: str) -> Path:
    """An executable of these lines."""
    path = directory / "script"
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return path


def create(sagemaker: Any, name: str, image: Path) -> None:
    """A configuration of that name, of one instance of a program."""
    sagemaker.create_model(ModelName=name, PrimaryContainer={"Image": str(image)})
    variant = {"VariantName": "v", "ModelName": name, "InstanceType": "ml.local.cpu"}
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])


def delete(sagemaker: Any, name: str) -> None:
    """Delete an endpoint, and return once it is gone."""
    sagemaker.delete_endpoint(EndpointName=name)
    sagemaker.get_waiter("endpoint_deleted").wait(EndpointName=name, WaiterConfig={"Delay": 1})


def wait(host: HostProcess, name: str) -> "subprocess.Popen[str]":
    """A process that waits for an endpoint."""
    return subprocess.Popen(
        [sys.executable, "-m", "halimede", "endpoints", name, "--wait"],
        env={**host.environment, "PYTHONUTF8": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
    )  # fmt: skip


def test_waiting_shows_what_the_instances_print_until_they_serve(host: HostProcess, tmp_path: Path) -> None:
    name = new_name("slow")
    loaded = tmp_path / "loaded"
    program = write_program(tmp_path)
    lines = ("echo loading weights", f"while [ ! -e {loaded} ]; do sleep 0.05; done", f"exec {program} serve")
    sagemaker = host.client("sagemaker")
    create(sagemaker, name, script(tmp_path, *lines))
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)

    with wait(host, name) as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == f"{name}: Creating …\n"
        assert waiting.stderr.readline() == "loading weights\n"
        loaded.touch()
        table, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 0
    assert cells(table)[1][:2] == [name, "InService"]

    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=name)
    assert ask(host, "invoke", name, "--data", "before").stdout == b"BEFORE\n"
    loaded.unlink()
    sagemaker.update_endpoint(EndpointName=name, EndpointConfigName=name)
    with wait(host, name) as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == f"{name}: Updating …\n"
        loaded.touch()
        table, said = waiting.communicate(timeout=60)
    assert waiting.returncode == 0
    assert "asked: before" not in said  # nothing of what the instances before have printed
    assert cells(table)[1][:2] == [name, "InService"]
    delete(sagemaker, name)


def test_endpoint_that_failed_is_described_with_the_reason(host: HostProcess, tmp_path: Path) -> None:
    name = new_name("broken")
    sagemaker = host.client("sagemaker")
    create(sagemaker, name, script(tmp_path, "echo no weights here", "exit 3"))
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)

    shown = ask(host, "endpoints", name, "--wait")

    assert shown.returncode == 1
    assert b"| Failed |" in shown.stdout
    assert "it ended with status 3; its last lines: no weights here" in reason(shown.stdout.decode())
    delete(sagemaker, name)


def test_an_update_that_is_under_way_is_described_with_its_alarms(host: HostProcess, tmp_path: Path) -> None:
    sagemaker = host.client("sagemaker")
    name, before, after, alarm = map(new_name, ("shifted", "before", "after", "slow"))
    for config in (before, after):
        create(sagemaker, config, write_program(tmp_path))
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=before)
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=name)
    host.client("cloudwatch").put_metric_alarm(
        AlarmName=alarm,
        Namespace="AWS/SageMaker",
        MetricName="ModelLatency",
        Statistic="Average",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1e6,
        ComparisonOperator="GreaterThanThreshold",
    )
    routing = {
        "Type": "CANARY",
        "WaitIntervalInSeconds": 3600,
        "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 10},
    }
    sagemaker.update_endpoint(
        EndpointName=name,
        EndpointConfigName=after,
        DeploymentConfig={
            "BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing},
            "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": alarm}]},
        },
    )
    with wait(host, name) as waiting:
        assert waiting.stderr is not None
        while "v Baking: 10 % of the requests, until 20" not in (line := waiting.stderr.readline()):
            assert line
        waiting.kill()

    shown = ask(host, "endpoints", name)

    assert shown.returncode == 0
    rows = cells(shown.stdout.decode())
    assert rows[1][:3] == [name, "Updating", before]
    assert rows[2] == ["Update to", "Variant", "Weight", "Instances", "Stage", "Progress", "Since"]
    assert rows[3][:5] == [after, "v", "1", "1/1", "Baking"]
    assert rows[3][5].startswith("10 % of the requests, until 20")
    assert rows[4] == ["Alarm", "State", "Reason"]
    assert rows[5] == [alarm, "INSUFFICIENT_DATA", "Unchecked: Initial alarm creation"]
    host.client("cloudwatch").delete_alarms(AlarmNames=[alarm])
    with wait(host, name) as waiting:
        table, _ = waiting.communicate(timeout=60)
    assert f"the CloudWatch alarm '{alarm}' does not exist any more" in reason(table)
    delete(sagemaker, name)


def test_models_are_listed(host: HostProcess, tmp_path: Path) -> None:
    shown = ask(host, "models")

    assert shown.returncode == 0
    [row] = [each for each in cells(shown.stdout.decode()) if each[0] == "m"]
    assert row[1] == "SingleModel"
    assert row[2].endswith("/program")


def test_lists_of_an_empty_host_say_so(tmp_path: Path) -> None:
    with start_host(tmp_path / "host") as empty:
        assert ask(empty, "endpoints").stdout == b"There are no endpoints.\n"
        assert ask(empty, "models").stdout == b"There are no models.\n"


@pytest.mark.parametrize("command", ["endpoints", "models"])
def test_what_is_deleted_while_it_is_listed_is_left_out(command: str) -> None:
    when = datetime(2026, 3, 4, tzinfo=UTC)
    kind = command.removesuffix("s").capitalize()

    async def listed(*_: Any) -> dict[str, Any]:
        dates = {"CreationTime": when, "LastModifiedTime": when, "EndpointStatus": "Deleting"}
        arn = f"arn:aws:sagemaker:us-east-1:123456789012:{kind.lower()}/gone"
        return {f"{kind}s": [{f"{kind}Name": "gone", f"{kind}Arn": arn, **dates}]}

    async def describe(*_: Any) -> dict[str, Any]:
        raise invalid(f'Could not find {kind.lower()} "gone".')

    keys = {ACCESS_KEY: Key(ACCESS_KEY, SECRET, ACCOUNT, ("sagemaker:*",))}
    operations = {f"List{kind}s": listed, f"Describe{kind}": describe}
    with api_host(keys, operations=operations) as host:
        done = call_text_command(command, environment=environment_of(host.port))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"There are no {command}.\n", "")


def test_body_of_an_invocation_is_text_a_file_or_standard_input(host: HostProcess, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"from a file")
    assert ask(host, "invoke", "e", "--data", "text").stdout == b"TEXT\n"
    assert ask(host, "invoke", "e", "--body", str(tmp_path / "body")).stdout == b"FROM A FILE\n"
    assert ask(host, "invoke", "e", "--body", "-", body=b"piped").stdout == b"PIPED\n"


def test_answer_may_go_to_a_file(host: HostProcess, tmp_path: Path) -> None:
    shown = ask(
        host, "invoke", "e", "--data", "text", "--target-variant", "v", "-o", str(tmp_path / "answer")
    )
    assert (shown.returncode, shown.stdout) == (0, b"")
    assert (tmp_path / "answer").read_bytes() == b"TEXT"


def test_answer_may_be_shown_as_it_comes(host: HostProcess) -> None:
    assert ask(host, "invoke", "e", "--data", "text", "--stream").stdout == b"TEXT\n"


def test_a_key_that_may_read_no_metrics_sees_the_endpoint_without_the_comparison() -> None:
    when = datetime(2026, 3, 4, tzinfo=UTC)
    variants = [
        {
            "VariantName": name,
            "CurrentWeight": 1.0,
            "CurrentInstanceCount": 1,
            "DesiredInstanceCount": 1,
        }
        for name in ("current", "candidate")
    ]

    async def describe(*_: Any) -> dict[str, Any]:
        return {
            "EndpointName": "e",
            "EndpointArn": "arn:aws:sagemaker:us-east-1:123456789012:endpoint/e",
            "EndpointStatus": "InService",
            "CreationTime": when,
            "LastModifiedTime": when,
            "ProductionVariants": variants[:1],
            "ShadowProductionVariants": variants[1:],
        }

    keys = {ACCESS_KEY: Key(ACCESS_KEY, SECRET, ACCOUNT, ("sagemaker:*",))}
    with api_host(keys, operations={"DescribeEndpoint": describe}) as host:
        done = call_text_command("endpoints", "e", environment=environment_of(host.port))
    assert done.returncode == 0
    assert "| candidate (shadow) | 1 " in done.stdout
    assert done.stderr.startswith("How its shadow variant compares cannot be shown: ")
    assert "is not authorized to perform: cloudwatch:ListMetrics" in done.stderr


@pytest.fixture(scope="module")
def echoing() -> Iterator[dict[str, str]]:
    """The environment of a host whose endpoint `echo` answers with the body and content type that it gets."""
    with api_host() as host, fake_instance() as instance:
        host.publish("echo", instance.port, "000000000000", "us-east-1")
        yield {
            **os.environ,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{host.port}",
            "AWS_DEFAULT_REGION": "us-east-1",
        }


@pytest.mark.parametrize(
    ("kind", "body", "shown"),
    [
        ("application/json", b"{}", b"{}\n"),
        ("application/json; charset=utf-8", b"{}\n", b"{}\n"),
        ("text/csv", b"1,2", b"1,2\n"),
        ("application/jsonlines", b"1", b"1\n"),
        ("application/octet-stream", b"\x00\x01", b"\x00\x01"),
        ("application/x-npy", b"", b""),
    ],
)
def test_text_that_is_printed_ends_with_a_line_end_and_binary_bodies_stay_as_they_are(
    echoing: dict[str, str], tmp_path: Path, kind: str, body: bytes, shown: bytes
) -> None:
    command = ["invoke", "echo", "--body", "-", "--content-type", kind]
    done = call_command(*command, environment=echoing, given=body)
    assert (done.returncode, done.stdout) == (0, shown)
    done = call_command(*command, "-o", str(tmp_path / "answer"), environment=echoing, given=body)
    assert done.returncode == 0
    assert (tmp_path / "answer").read_bytes() == body


def test_what_is_printed_on_a_terminal_ends_with_a_line_end(echoing: dict[str, str]) -> None:
    command = [
        sys.executable,
        "-m",
        "halimede",
        "invoke",
        "echo",
        "--data",
        "1",
        "--content-type",
        "application/x-own",
    ]
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        subprocess.run(command, env=echoing, stdout=theirs, timeout=60, check=True)
        os.close(theirs)
        assert terminal.read(100) == b"1\r\n"


def test_a_session_that_is_opened_or_closed_is_told_apart_from_the_answer() -> None:
    def stateful(received: Received) -> Reply:
        name = received.headers["x-amzn-sagemaker-session-id"]
        if name == "NEW_SESSION":
            opened = "s-1; Expires=2099-01-01T00:00:00Z"
            return Reply(200, b"hello", {"X-Amzn-SageMaker-New-Session-Id": opened})
        return Reply(200, b"bye", {"X-Amzn-SageMaker-Closed-Session-Id": name})

    with api_host() as host, fake_instance() as instance:
        instance.invoke = stateful
        host.publish("chat", instance.port, "000000000000", "us-east-1")
        url = f"http://127.0.0.1:{host.port}"
        variables = {**os.environ, "AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1"}

        def invoke(session: str) -> "subprocess.CompletedProcess[bytes]":
            return call_command("invoke", "chat", "--data", "x", "--session", session, environment=variables)

        answer = invoke("NEW_SESSION")
        assert answer.stdout == b"hello"
        told = answer.stderr.decode().rstrip("\n")
        session = told.removeprefix("opened session ").removesuffix("; Expires=2099-01-01T00:00:00Z")
        assert told == f"opened session {session}; Expires=2099-01-01T00:00:00Z"
        answer = invoke(session)
        assert (answer.stdout, answer.stderr.decode()) == (b"bye", f"closed session {session}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["e"], "say the body with one of --data and --body"),
        (["e", "--data", "x", "--body", "y"], "say the body with one of --data and --body"),
        (["e", "--body", "/missing"], "--body: cannot read '/missing': No such file or directory"),
        (
            ["e", "--data", "x", "--stream", "--target-model", "m"],
            "--stream: multi-model endpoints give no response",
        ),
        (["e", "--data", "x", "--target-variant", "green"], "green"),
        (["e", "--data", "x", "--target-model", "m"], "does not support target model header m"),
        (
            ["e", "--data", "x", "--target-container", "c"],
            "does not support target container hostname header c",
        ),
        (["e", "--data", "x", "--session", "s-1"], "Session s-1 of endpoint e is not known"),
        (["missing", "--data", "x"], "missing"),
        (["e", "--data", "x", "-o", "/missing/answer"], "--output: cannot write '/missing/answer'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_invocation_is_told_in_one_line(host: HostProcess, arguments: list[str], message: str) -> None:
    shown = ask(host, "invoke", *arguments)
    usage = message.startswith(("say the body", "--body", "--stream"))
    assert shown.returncode == (2 if usage else 1)
    assert message in shown.stderr.decode()
    assert len(shown.stderr.splitlines()) == 1


def test_logs_of_all_instances_are_shown_with_their_names(host: HostProcess) -> None:
    shown = ask(host, "logs", "e", "-n", "10000")  # they have begun long ago

    assert shown.returncode == 0
    ready = [line for line in shown.stdout.decode().splitlines() if line.endswith("is ready")]
    assert len({line.split()[0] for line in ready}) == 2
    assert all(line.startswith("v/i-") for line in ready)


def test_logs_of_one_instance_can_be_asked_for(host: HostProcess) -> None:
    name = ask(host, "logs", "e").stdout.decode().split()[0]

    shown = ask(host, "logs", "e", "--instance", name, "-n", "1")

    assert len(shown.stdout.splitlines()) == 1
    assert not shown.stdout.startswith(b"v/")


def test_logs_that_are_followed_go_on(host: HostProcess) -> None:
    command = [sys.executable, "-m", "halimede", "logs", "e", "--follow"]
    follower = subprocess.Popen(command, env=dict(host.environment), stdout=subprocess.PIPE)
    try:
        assert follower.stdout is not None
        assert b"v/i-" in follower.stdout.readline()
        text = new_name("what follows")
        ask(host, "invoke", "e", "--data", text)
        while f"asked: {text}\n".encode() not in (line := follower.stdout.readline()):
            assert line
    finally:
        follower.terminate()
        follower.communicate()


def test_missing_logs_are_told_in_one_line(host: HostProcess) -> None:
    assert ask(host, "logs", "no").stderr == b"halimede: there are no logs of endpoint no\n"
    assert ask(host, "logs", "e", "--instance", "w").stderr == (
        b"halimede: there are no logs of endpoint e, instance w\n"
    )


@pytest.mark.parametrize(
    "command", [["endpoints"], ["models"], ["invoke", "e", "--data", "x"], ["logs", "e"]]
)
def test_absent_host_is_told_in_one_line(command: list[str]) -> None:
    shown = call_text_command(*command, "--endpoint-url", "http://127.0.0.1:9")
    assert shown.returncode == 1
    assert shown.stderr == (
        "halimede: no host answers at http://127.0.0.1:9; start one with `halimede host`, or set --endpoint-url\n"
    )


def test_missing_boto3_is_named_with_how_to_install_it() -> None:
    program = "import sys; sys.modules['boto3'] = None; from halimede.cli.main import main; main(['models'])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        'halimede: this command needs boto3, which is not installed: pip install "halimede[host]"\n'
    )


COMMANDS = (["endpoints"], ["models"], ["invoke", "e", "--data", "x"], ["logs", "e"])


class Other(BaseHTTPRequestHandler):
    """A server that is no host."""

    status, body = 404, b""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b""),
        (400, b'{"error":"Not Found"}'),
        (501, b"<!DOCTYPE HTML>\n<html>\n<body>no</body>\n</html>\n"),
        (200, b"{}"),
        (200, b"hello"),
        (500, b"\xff\xfe"),
        (500, b"[1]"),
        (200, b"[1]"),
        (400, b'"text"'),
    ],
)
def test_a_server_that_is_no_host_is_told_in_one_line(
    status: int, body: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Other, "status", status)
    monkeypatch.setattr(Other, "body", body)
    with HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            for command in COMMANDS:
                with pytest.raises(SystemExit) as ended:
                    main([*command, "--endpoint-url", url])
                assert ended.value.code == 1
                shown = capsys.readouterr()
                assert shown.out == ""
                assert shown.err.startswith(f"halimede: the server at {url} is no host of halimede (")
                assert shown.err.endswith("); start one with `halimede host`, or set --endpoint-url\n")
                assert len(shown.err.splitlines()) == 1
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "url",
    [
        "",
        "foo",
        "127.0.0.1:8088",
        "http://",
        "http://localhost:99999",
        "http://[::1",
        "ftp://localhost:1",
        "http://a b",
    ],
)
def test_a_malformed_url_is_told_in_one_line(
    command: list[str], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--endpoint-url", url])
    assert ended.value.code != 0
    shown = capsys.readouterr()
    assert (shown.out, len(shown.err.splitlines())) == ("", 1)
    expected = (
        f"--endpoint-url (or AWS_ENDPOINT_URL): '{url}' is no URL of a host, such as http://127.0.0.1:8088"
    )
    assert expected in shown.err


@pytest.fixture(scope="module")
def asynchronous(host: HostProcess, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An asynchronous endpoint, whose results go to the bucket ``results``."""
    program = write_program(tmp_path_factory.mktemp("asynchronous"))
    sagemaker, s3 = host.client("sagemaker"), host.client("s3")
    s3.create_bucket(Bucket="results")
    s3.put_object(Bucket="results", Key="in.txt", Body=b"from a bucket")
    sagemaker.create_model(ModelName="later", PrimaryContainer={"Image": str(program)})
    variant = {
        "VariantName": "v",
        "ModelName": "later",
        "InstanceType": "ml.local.cpu",
        "InitialInstanceCount": 1,
    }
    output = {"S3OutputPath": "s3://results/out", "S3FailurePath": "s3://results/errors"}
    sagemaker.create_endpoint_config(
        EndpointConfigName="later",
        ProductionVariants=[variant],
        AsyncInferenceConfig={"OutputConfig": output},
    )
    sagemaker.create_endpoint(EndpointName="later", EndpointConfigName="later")
    waiter = sagemaker.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName="later", WaiterConfig={"Delay": 1})
    return "later"


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [(("--data", "text"), b"TEXT"), (("--input", "s3://results/in.txt"), b"FROM A BUCKET")],
)
def test_request_is_put_into_the_queue_of_an_asynchronous_endpoint(
    host: HostProcess, asynchronous: str, arguments: tuple[str, ...], answer: bytes
) -> None:
    shown = ask(host, "invoke", asynchronous, "--async", *arguments)
    assert shown.returncode == 0, shown.stderr
    lines = dict(line.rsplit(maxsplit=1) for line in shown.stdout.decode().splitlines())
    assert lines["result"] == f"s3://results/out/{lines['inference id']}.out"
    assert lines["or an error"] == f"s3://results/errors/{lines['inference id']}-error.out"
    s3 = host.client("s3")
    key = lines["result"].removeprefix("s3://results/")
    s3.get_waiter("object_exists").wait(Bucket="results", Key=key, WaiterConfig={"Delay": 1})
    assert s3.get_object(Bucket="results", Key=key)["Body"].read() == answer


def test_backlog_of_an_asynchronous_endpoint_is_shown(host: HostProcess, asynchronous: str) -> None:
    wait_until(
        lambda: b"Backlog, mean of the latest minute: " in ask(host, "endpoints", asynchronous).stdout,
        "the backlog to be shown",
    )
    assert b"Backlog" not in ask(host, "endpoints", "e").stdout
    with urllib.request.urlopen(f"{host.url}/metrics", timeout=30) as page:
        assert (
            b'halimede_host_async_backlog{account="000000000000",region="us-east-1",endpoint="later"}'
            in page.read()
        )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--async",), b"say the body with one of --data, --body and --input"),
        (("--data", "x", "--input", "s3://b/k"), b"say the body with one of --data and --body"),
        (("--input", "s3://b/k"), b"--input is for requests to asynchronous endpoints; add --async"),
        (("--async", "--data", "x", "--stream"), b"--stream has no place beside --async"),
        (("--async", "--data", "x", "-o", "file"), b"--output has no place beside --async"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    host: HostProcess, arguments: tuple[str, ...], text: bytes
) -> None:
    shown = ask(host, "invoke", "e", *arguments)
    assert shown.returncode == 2
    assert text in shown.stderr
