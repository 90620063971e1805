"""The command `halimede host`: options, start and stop."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.cli.hosting.host import command
from halimede.cli.main import main
from tests.frontends.http.serving import Client
from tests.support.commands import call_text_command
from tests.support.host import HostProcess, start_host
from tests.support.program import write_program
from tests.support.server import run_command
from tests.support.waiting import wait_until

VARIANT = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.local.cpu", "InitialInstanceCount": 2}


def create_endpoint(host: HostProcess, program: Path, name: str = "e") -> None:
    """An endpoint of two instances of a program, in service."""
    sagemaker = host.client("sagemaker")
    role = "arn:aws:iam::000000000000:role/any"
    sagemaker.create_model(ModelName="m", ExecutionRoleArn=role, PrimaryContainer={"Image": str(program)})
    sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[VARIANT])
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName="c")
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=name, WaiterConfig={"Delay": 1})


def invoke(host: HostProcess, name: str = "e") -> bytes:
    response = host.client("sagemaker-runtime").invoke_endpoint(EndpointName=name, Body=b"hello")
    body: bytes = response["Body"].read()
    return body


def instances(directory: Path) -> dict[str, int]:
    """Instance → its process, as the host's directory says."""
    states = [json.loads(file.read_bytes()) for file in directory.glob("instances/*/instance.json")]
    return {state["running"]["request"]["id"]: state["running"]["pid"] for state in states}


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    """The directory of a host that leaves its instances; what a test has left of them is ended."""
    yield tmp_path / "kept"
    for pid in instances(tmp_path / "kept").values():
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


# options


def test_help_says_what_every_option_is_for() -> None:
    shown = call_text_command("host", "--help")

    assert shown.returncode == 0
    for option in (
        "--address", "--port", "--directory", "--region", "--account", "--keys", "--generate-key", "--allow-host",
        "--allow-origin", "--allow-program-images", "--allow-loopback-subscriptions", "--catalogue", "--image-rules",
        "--oversubscription", "--s3-endpoint", "--bucket", "--payload-mib",
        "--invocation-timeout", "--describe-hold", "--keep-instances", "--print-env",
    ):  # fmt: skip
        assert f"\n  {option}" in shown.stdout


def test_every_option_is_documented() -> None:
    pages = "".join(
        page.read_text() for page in [*sorted(Path("docs").glob("hosting*.md")), Path("docs/cluster.md")]
    )
    for option in command.params:
        assert re.search(rf"(?<![-\w]){option.opts[0]}(?![-\w])", pages), option.opts[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "70000"], "70000"),
        (["--port", "many"], "'many'"),
        (["--account", "12"], "--account: '12' is no account; it has twelve digits"),
        (["--region", "Frankfurt!"], "--region: 'Frankfurt!' is no region"),
        (["--keys", "missing.toml"], "cannot read the keys file missing.toml"),
        (["--keys", "empty.toml"], "empty.toml has no table [keys.ID]"),
        (["--catalogue", "missing.toml"], "cannot read the catalogue missing.toml"),
        (["--catalogue", "wrong.toml"], "the name of an instance type begins with 'ml.'"),
        (["--image-rules", "missing.toml"], "cannot read the image rules missing.toml"),
        (["--image-rules", "wrong.toml"], "wrong.toml"),
        (["--bucket", "name"], "--bucket: expected NAME=DIRECTORY, got 'name'"),
        (["--bucket", "=/tmp"], "--bucket: expected NAME=DIRECTORY, got '=/tmp'"),
        (["--bucket", "name=missing"], "--bucket: 'missing' is no directory"),
        (
            ["--allow-origin", "app.example"],
            "--allow-origin: 'app.example' is no origin; one is a scheme and a host",
        ),
        (["--allow-origin", "https://app.example/page"], "'https://app.example/page' is no origin"),
        (["--allow-program-images", "some"], "'some'"),
        (["--allow-loopback-subscriptions", "some"], "'some'"),
        (["--oversubscription", "0"], "0"),
        (["--payload-mib", "0"], "0"),
        (["--invocation-timeout", "0"], "0"),
        (["--describe-hold", "60"], "60"),
        (["--directory", "empty.toml"], "empty.toml"),
        (["--print-env", "--port", "0"], "--print-env: which port it will be is not known; give --port"),
        (["--no-such-option"], "--no-such-option"),
        (["argument"], "argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_option_is_told_in_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty.toml").touch()
    (tmp_path / "wrong.toml").write_text('[wrong]\nwhat = "this"\n')
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SystemExit) as ended:
        main(["host", *arguments])

    assert ended.value.code == 2
    refused = capsys.readouterr()
    assert refused.out == ""
    assert message in refused.err
    assert len(refused.err.splitlines()) == 1
    assert refused.err.startswith("halimede: ")


def test_wrong_s3_endpoint_is_told_in_one_line(tmp_path: Path) -> None:
    refused = run_command("host", f"--directory={tmp_path / 'host'}", "--s3-endpoint", "minio")

    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr == "halimede: the endpoint of an S3 service is a URL, or 'aws'; got 'minio'\n"


def test_print_env_gives_what_a_shell_evaluates() -> None:
    printed = call_text_command("host", "--print-env", "--port", "9000", "--region", "eu-central-1")

    assert printed.returncode == 0
    assert printed.stdout.splitlines() == [
        "export AWS_ENDPOINT_URL=http://127.0.0.1:9000",
        "export AWS_DEFAULT_REGION=eu-central-1",
        "export AWS_ACCESS_KEY_ID=halimede",
        "export AWS_SECRET_ACCESS_KEY=halimede",
    ]


def test_print_env_names_no_key_where_keys_are_verified(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text('[keys.ME]\nsecret = "secret"\n')

    printed = call_text_command("host", "--print-env", "--keys", str(keys))

    assert [line.partition("=")[0] for line in printed.stdout.splitlines()] == [
        "export AWS_ENDPOINT_URL",
        "export AWS_DEFAULT_REGION",
    ]


@pytest.mark.parametrize(
    ("address", "shown"),
    [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("10.0.0.7", "10.0.0.7")],
)
def test_print_env_names_an_address_that_one_can_connect_to(address: str, shown: str) -> None:
    printed = call_text_command("host", "--print-env", "--address", address)
    [assignment, *_] = shlex.split(printed.stdout.splitlines()[0])[1:]
    assert assignment == f"AWS_ENDPOINT_URL=http://{shown}:8088"


@pytest.mark.parametrize("module", ["awscrt", "_awscrt", "botocore", "obstore", "regex"])
def test_missing_extra_is_named_with_how_to_install_it(module: str, tmp_path: Path) -> None:
    program = f"import sys; sys.modules[{module!r}] = None; from halimede.cli.main import main; main()"

    done = subprocess.run(
        [sys.executable, "-c", program, "host", f"--directory={tmp_path / 'host'}", "--port=0"],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr == (
        f"halimede: the host needs {module.lstrip('_')}, which is not installed; install it with: "
        f'pip install "halimede[host]"\n'
    )
    assert not (tmp_path / "host").exists()


# start and stop


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the host that tests share."""
    return tmp_path_factory.mktemp("hosts") / "host"


@pytest.fixture(scope="module")
def plain(directory: Path) -> Iterator[HostProcess]:
    """A host without options."""
    with start_host(directory) as host:
        yield host


def test_started_host_says_how_clients_find_it_and_has_its_directory_for_itself(
    plain: HostProcess, directory: Path
) -> None:
    log = plain.log
    assert f"export AWS_ENDPOINT_URL={plain.url}" in log
    assert "export AWS_DEFAULT_REGION=us-east-1" in log
    assert f"process {plain.process.pid}; state is in {directory}" in log
    assert plain.client("sts").get_caller_identity()["Account"] == "000000000000"

    refused = run_command("host", f"--directory={directory}", "--port=0")

    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        f"halimede: another host has the directory '{directory}' (process {plain.process.pid}); stop it, or "
        f"choose another with --directory"
    )
    assert plain.client("sagemaker").list_models()["Models"] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_host_and_its_instances(number: signal.Signals, tmp_path: Path) -> None:
    with start_host(tmp_path / "host") as host:
        create_endpoint(host, write_program(tmp_path))
        pids = instances(tmp_path / "host").values()
        assert len(pids) == 2
        assert all(map(is_running, pids))

        assert host.stop(number) == 0

        assert not any(map(is_running, pids))
        assert not instances(tmp_path / "host")
        assert "stopping: instances are ended" in host.log


def test_stopped_host_starts_its_endpoints_again(tmp_path: Path) -> None:
    with start_host(tmp_path / "host") as host:
        create_endpoint(host, write_program(tmp_path))
        before = instances(tmp_path / "host")
        host.stop()
    with start_host(tmp_path / "host") as host:
        wait_until(lambda: status(host) == "InService", "the endpoint to be in service again")
        assert invoke(host) == b"HELLO"
        assert not instances(tmp_path / "host").keys() & before.keys()


def status(host: HostProcess) -> Any:
    return host.client("sagemaker").describe_endpoint(EndpointName="e")["EndpointStatus"]


def test_kept_instances_are_found_again(kept: Path, tmp_path: Path) -> None:
    with start_host(kept, "--keep-instances") as host:
        create_endpoint(host, write_program(tmp_path))
        before = instances(kept)
        assert host.stop() == 0
        assert "stopping: instances run on" in host.log
    assert all(map(is_running, before.values()))

    with start_host(kept) as host:
        wait_until(lambda: status(host) == "InService", "the endpoint to be in service again")
        assert invoke(host) == b"HELLO"
        assert instances(kept) == before
    assert not any(map(is_running, before.values()))


def test_killed_host_finds_its_instances_again(kept: Path, tmp_path: Path) -> None:
    with start_host(kept) as host:
        create_endpoint(host, write_program(tmp_path))
        before = instances(kept)
        host.stop(signal.SIGKILL)
    with start_host(kept) as host:
        wait_until(lambda: status(host) == "InService", "the endpoint to be in service again")
        assert invoke(host) == b"HELLO"
        assert instances(kept) == before


def test_signal_while_an_endpoint_is_created_leaves_nothing(tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 1000\n")
    silent.chmod(0o755)
    with start_host(tmp_path / "host", "--describe-hold=0") as host:
        sagemaker = host.client("sagemaker")
        role = "arn:aws:iam::000000000000:role/any"
        sagemaker.create_model(ModelName="m", ExecutionRoleArn=role, PrimaryContainer={"Image": str(silent)})
        sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[VARIANT])
        sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
        wait_until(lambda: len(instances(tmp_path / "host")) == 2, "two instances")
        pids = instances(tmp_path / "host").values()

        assert host.stop() == 0

        assert not any(map(is_running, pids))


def test_port_in_use_is_refused_before_anything_is_started(
    plain: HostProcess, kept: Path, tmp_path: Path
) -> None:
    with start_host(kept, "--keep-instances") as host:
        create_endpoint(host, write_program(tmp_path))
        before = instances(kept)
    port = plain.url.rpartition(":")[2]
    refused = run_command("host", f"--directory={kept}", f"--port={port}")

    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        f"halimede: cannot listen at 127.0.0.1:{port}: the port is in use; choose another with --port"
    )
    assert instances(kept) == before
    assert all(map(is_running, before.values()))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir(mode=0o500)
    refused = run_command("host", f"--directory={tmp_path / 'host'}", "--port=0")
    assert refused.returncode == 1
    assert "Permission denied; choose another with --directory" in refused.stderr


def test_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = run_command("host", f"--directory={tmp_path / 'file' / 'below'}", "--port=0")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].endswith("Not a directory; choose another with --directory")


# what options bring about


def test_files_and_buckets_that_are_given_are_used(tmp_path: Path) -> None:
    (tmp_path / "types.toml").write_text('["ml.my.large"]\ncpus = 1\nmemory_gib = 1\n')
    rules = f'[[images]]\npattern = "my-server:.*"\ncommand = ["{write_program(tmp_path)}"]\n'
    (tmp_path / "images.toml").write_text(rules)
    (tmp_path / "weights").write_text("weights")
    (tmp_path / "archives").mkdir()
    with tarfile.open(tmp_path / "archives" / "m.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "weights", "m/1/weights")
    flags = (
        f"--catalogue={tmp_path / 'types.toml'}",
        f"--image-rules={tmp_path / 'images.toml'}",
        f"--bucket=local={tmp_path / 'archives'}",
        "--region=eu-central-1",
        "--account=123456789012",
    )
    with start_host(tmp_path / "host", *flags) as host:
        sagemaker = host.client("sagemaker")
        container = {"Image": "my-server:1", "ModelDataUrl": "s3://local/m.tar.gz"}
        made = sagemaker.create_model(ModelName="m", PrimaryContainer=container)
        assert made["ModelArn"] == "arn:aws:sagemaker:us-east-1:123456789012:model/m"
        variant = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.my.large"}
        sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])
        sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="e", WaiterConfig={"Delay": 1})

        assert invoke(host) == b"HELLO"
        assert (
            tmp_path / "host" / "logs" / "123456789012" / "us-east-1" / "e" / "v" / "data-log.log"
        ).read_text().splitlines() == [
            "fetching s3://local/m.tar.gz",
            "fetched 0.0 of 0.0 MB of s3://local/m.tar.gz",
        ]


def test_keys_are_verified_and_allow_what_the_file_says(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(
        '[keys.READER]\nsecret = "of-reader"\nactions = ["sagemaker:List*"]\n'
        '[keys.OWNER]\nsecret = "of-owner"\naccount = "123456789012"\n'
    )
    with start_host(tmp_path / "host", f"--keys={keys}") as host:

        def client(service: str, key: str, secret: str) -> Any:
            return host.client(service, aws_access_key_id=key, aws_secret_access_key=secret)

        def refusal(key: str, secret: str, operation: str, **parameters: Any) -> str:
            with pytest.raises(ClientError) as refused:
                getattr(client("sagemaker", key, secret), operation)(**parameters)
            code: str = refused.value.response["Error"]["Code"]
            return code

        assert client("sts", "OWNER", "of-owner").get_caller_identity()["Account"] == "123456789012"
        assert client("sagemaker", "READER", "of-reader").list_models()["Models"] == []
        s3 = client("s3", "OWNER", "of-owner")
        s3.create_bucket(Bucket="mine")
        s3.put_object(Bucket="mine", Key="k", Body=b"content")
        assert s3.get_object(Bucket="mine", Key="k")["Body"].read() == b"content"
        assert refusal("READER", "of-reader", "delete_model", ModelName="m") == "AccessDeniedException"
        assert refusal("READER", "wrong", "list_models") == "InvalidSignatureException"
        assert refusal("STRANGER", "any", "list_models") == "UnrecognizedClientException"


# web pages


def test_a_web_page_starts_no_program(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    program = tmp_path / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    flags = ("--allow-host=host.lan", "--allow-origin=https://app.example")
    body = json.dumps({"ModelName": "m", "PrimaryContainer": {"Image": str(program)}})

    def create(host: HostProcess, name: str, origin: str) -> int:
        lines = [
            "POST / HTTP/1.1", f"Host: {name}", f"Origin: {origin}", "X-Amz-Target: SageMaker.CreateModel",
            "Content-Type: text/plain", f"Content-Length: {len(body)}", "", body,
        ]  # fmt: skip
        with Client(int(host.url.rpartition(":")[2])) as client:
            return client.ask("\r\n".join(lines).encode()).status

    with start_host(tmp_path / "host", *flags) as host:
        assert create(host, "evil.example", "http://evil.example") == 403
        assert create(host, "localhost", "http://evil.example") == 403
        assert create(host, "evil.example", "https://app.example") == 403
        with pytest.raises(ClientError, match="Could not find model"):
            host.client("sagemaker").describe_model(ModelName="m")
        assert create(host, "host.lan", "https://app.example") == 200
        assert host.client("sagemaker").describe_model(ModelName="m")["ModelName"] == "m"
        wait_until(
            lambda: host.log.count("denied: POST / SageMaker.CreateModel of 127.0.0.1:") == 3,
            "the log of what was denied",
        )
    assert not marker.exists()


# keys that the host generates, or that a variable has


def exported(text: str) -> dict[str, str]:
    """The variables that a shell has after evaluating lines."""
    lines = [line.removeprefix("export ") for line in text.splitlines() if line.startswith("export ")]
    return dict(shlex.split(line)[0].split("=", 1) for line in lines)


def test_a_host_that_listens_beyond_loopback_generates_a_key(tmp_path: Path) -> None:
    directory = tmp_path / "host"
    with start_host(directory, "--address=0.0.0.0") as host:
        wait_until(lambda: "AWS_SECRET_ACCESS_KEY" in exported(host.log), "the key in the log")
        variables = exported(host.log)
        assert variables["AWS_ENDPOINT_URL"] == host.url
        with pytest.raises(ClientError, match="not in this host's keys file"):
            host.client("sagemaker").list_endpoints()
        keys = {
            "aws_access_key_id": variables["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": variables["AWS_SECRET_ACCESS_KEY"],
        }
        assert host.client("sagemaker", **keys).list_endpoints()["Endpoints"] == []
    assert (directory / "keys.toml").stat().st_mode & 0o777 == 0o600
    secret = variables["AWS_SECRET_ACCESS_KEY"]
    with start_host(directory, "--address=0.0.0.0") as host:
        assert host.client("sagemaker", **keys).list_endpoints()["Endpoints"] == []
        wait_until(
            lambda: f"the key is in {directory}/keys.toml" in host.log, "the log to say where the key is"
        )
        assert secret not in host.log  # it is printed once
    printed = call_text_command("host", "--print-env", f"--directory={directory}")
    assert exported(printed.stdout) == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:8088",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": keys["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": secret,
    }
    with start_host(directory) as host:  # on loopback it needs none
        assert host.client("sagemaker").list_endpoints()["Endpoints"] == []


def test_a_key_is_generated_on_loopback_if_asked_for(tmp_path: Path) -> None:
    with start_host(tmp_path / "host", "--generate-key=always", "--account=123456789012") as host:
        with pytest.raises(ClientError):
            host.client("sagemaker").list_endpoints()
        wait_until(lambda: "AWS_SECRET_ACCESS_KEY" in exported(host.log), "the key in the log")
        variables = exported(host.log)
        sts = host.client(
            "sts",
            aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        )
        assert sts.get_caller_identity()["Account"] == "123456789012"


def test_who_lets_anybody_in_from_a_network_is_warned(tmp_path: Path) -> None:
    with start_host(tmp_path / "host", "--address=0.0.0.0", "--generate-key=never") as host:
        assert host.client("sagemaker").list_endpoints()["Endpoints"] == []
        wait_until(lambda: "may run code on this machine" in host.log, "the warning")
        assert "start without --generate-key=never, or with --keys" in host.log


def test_keys_come_from_a_variable_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALIMEDE_HOST_KEYS", "AKIDONE:first/secret+1 AKIDTWO:second")
    with start_host(tmp_path / "host", "--address=0.0.0.0") as host:
        for name, secret in (("AKIDONE", "first/secret+1"), ("AKIDTWO", "second")):
            client = host.client("sagemaker", aws_access_key_id=name, aws_secret_access_key=secret)
            assert client.list_endpoints()["Endpoints"] == []
        with pytest.raises(ClientError, match="signature"):
            host.client("sagemaker", aws_access_key_id="AKIDONE", aws_secret_access_key="x").list_endpoints()
        assert "first/secret+1" not in host.log
    assert not (tmp_path / "host" / "keys.toml").exists()
    shown = exported(call_text_command("host", "--print-env").stdout)
    assert (shown["AWS_ACCESS_KEY_ID"], shown["AWS_SECRET_ACCESS_KEY"]) == ("AKIDONE", "first/secret+1")


@pytest.mark.parametrize(
    "value", ["hunter2secret", "AKIDONE:good hunter2secret", ":hunter2secret", "", "A B:hunter2secret"]
)
def test_a_malformed_variable_of_keys_is_not_repeated(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HALIMEDE_HOST_KEYS", value)
    with pytest.raises(SystemExit):
        main(["host", f"--directory={tmp_path / 'host'}"])
    refused = capsys.readouterr()
    assert "HALIMEDE_HOST_KEYS" in refused.err
    assert "ID:SECRET" in refused.err
    assert "hunter2secret" not in refused.err + refused.out
    assert "good" not in refused.err


def test_a_file_and_a_variable_of_keys_are_one_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HALIMEDE_HOST_KEYS", "AKIDONE:secret")
    with pytest.raises(SystemExit):
        main(["host", f"--directory={tmp_path / 'host'}", "--keys", "keys.toml"])
    assert "--keys and HALIMEDE_HOST_KEYS both give keys; use one of them" in capsys.readouterr().err


def test_the_variables_can_be_copied_from_the_log(plain: HostProcess) -> None:
    wait_until(lambda: "export AWS_SECRET_ACCESS_KEY" in plain.log, "the variables in the log")
    assert exported(plain.log) == {
        "AWS_ENDPOINT_URL": plain.url,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "halimede",
        "AWS_SECRET_ACCESS_KEY": "halimede",
    }


@pytest.mark.parametrize(
    ("blocked", "reason"),
    [
        ("roles.key/", "roles.key: Is a directory"),
        ("instances", "instances: File exists"),
        ("state.db/", "state.db"),
    ],
)
def test_why_a_host_cannot_start_is_the_last_thing_it_says(tmp_path: Path, blocked: str, reason: str) -> None:
    path = tmp_path / "host" / blocked
    if blocked.endswith("/"):
        path.mkdir(parents=True)
    else:
        path.parent.mkdir()
        path.touch()
    refused = run_command("host", f"--directory={tmp_path / 'host'}", "--port=0")
    assert refused.returncode == 1
    [line] = refused.stderr.splitlines()
    assert line.startswith("halimede: ")
    assert reason in line
