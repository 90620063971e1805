"""`halimede top` beside real hosts, and what it makes of their snapshots."""

import io
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from halimede.hosting.substrates.processes import end_marked
from halimede.top.host_rates import percentile, variant_rates
from halimede.top.host_snapshot import HostSnapshot, of_host
from halimede.top.host_view import host_view
from tests.hosting.control.deployments.test_policies import blue_green, percent
from tests.support.commands import call_text_command
from tests.support.host import HostProcess, start_host
from tests.support.program import write_program
from tests.support.terminal import on_terminal
from tests.support.waiting import wait_until

ROLE = "arn:aws:iam::000000000000:role/x"
CANARY = {
    "Status": "Baking",
    "StatusMessage": "30 % of the requests, until 2026-11-28T07:00:00Z",
    "StartTime": "1970-01-01T00:01:30+00:00",
}


def variant(name: str, weight: float, wanted: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "VariantName": name,
        "CurrentWeight": weight,
        "CurrentInstanceCount": 1,
        "DesiredInstanceCount": wanted,
        **more,
    }


def figures(name: str, *, shadow: bool = False, **changes: Any) -> dict[str, Any]:
    return {
        "variant": name,
        "shadow": shadow,
        "instances": 1,
        "in_flight": changes.get("in_flight", 0),
        "sums": {"Invocations": 0, "Invocation4XXErrors": 0} | changes.get("sums", {}),
        "counts": changes.get("counts", {}),
        "latencies": changes.get("latencies", []),
        "copies": changes.get("copies"),
    }


def document(time: float, *counted: dict[str, Any], started: float = 40.0) -> dict[str, Any]:
    """A document of the host's console, of an endpoint that is being updated, an asynchronous one and a failed one."""
    return {
        "time": time,
        "started": started,
        "host": {"version": "9", "account": "123456789012", "region": "eu-north-1"},
        "endpoints": [
            {
                "EndpointName": "failed", "EndpointStatus": "Failed", "FailureReason": "no such image",
                "Figures": [], "Shares": {}, "Backlog": None,
            },
            {
                "EndpointName": "queue", "EndpointStatus": "InService", "EndpointConfigName": "q",
                "ProductionVariants": [variant("only", 1)], "Figures": [figures("only")], "Shares": {"q": 1.0},
                "Backlog": 17,
            },
            {
                "EndpointName": "reader", "EndpointStatus": "Updating", "EndpointConfigName": "old",
                "ProductionVariants": [variant("stable", 4, 2), variant("tried", 1)],
                "ShadowProductionVariants": [variant("copy", 1)],
                "PendingDeploymentSummary": {
                    "EndpointConfigName": "new",
                    "ProductionVariants": [variant("stable", 1, VariantStatus=[CANARY])],
                },
                "Figures": list(counted), "Shares": {"old": 0.7, "new": 0.3}, "Backlog": None,
            },
        ],
        "instances": [
            {
                "id": "i-1", "endpoint": "reader", "variant": "stable", "node": "", "address": "127.0.0.1:1",
                "pid": 4321, "takes_requests": True, "in_flight": 5, "models": None, "cpu": 150.0, "memory": 12.5,
                "disk": None,
            }
        ],
        "alarms": [
            {"AlarmName": "errors", "StateValue": "ALARM", "StateReason": "0.5 > 0.2"},
            {"AlarmName": "quiet", "StateValue": "OK", "StateReason": ""},
        ],
        "activities": [],
    }  # fmt: skip


BEFORE = document(
    100.0, figures("stable", latencies=[[1000, 50]], sums={"Invocations": 50}), figures("tried")
)
AFTER = document(
    102.0,
    figures(
        "stable",
        sums={
            "Invocations": 250,
            "Invocation5XXErrors": 4,
            "ModelLatency": 400_000,
            "OverheadLatency": 20_000,
        },
        counts={"ModelLatency": 200, "OverheadLatency": 200},
        latencies=[[1000, 150], [2000, 90], [9000, 10]],
        in_flight=5,
    ),
    figures("tried"),
    figures(
        "copy",
        shadow=True,
        sums={"Invocations": 20, "ShadowCopiesLost": 2, "ShadowStatusAgreement": 18, "ShadowAgreement": 15},
        counts={"ShadowStatusAgreement": 20, "ShadowAgreement": 20},
        copies=3,
    ),
)


def drawn(before: HostSnapshot, after: HostSnapshot, width: int = 160, **options: Any) -> list[list[str]]:
    """What a terminal shows: words, line by line."""
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(host_view("here:8088", before, after, **options))
    return [line.split() for line in console.export_text().splitlines() if line.strip()]


def test_rates_are_differences_of_snapshots() -> None:
    after = of_host(AFTER)
    rates = variant_rates(of_host(BEFORE), after, after.endpoints["reader"], "stable")
    assert (rates.requests, rates.server_errors, rates.client_errors) == (100, 2, 0)
    assert (rates.mean_ms, rates.p50_ms, rates.p99_ms, rates.overhead_ms) == (2, 1, 9, 0.1)
    copies = variant_rates(of_host(BEFORE), after, after.endpoints["reader"], "copy")
    assert (copies.requests, copies.lost, copies.compared) == (10, 1, 10)
    assert (copies.same_status, copies.agreement) == (0.9, 0.75)


def test_counts_that_began_anew_are_not_negative() -> None:
    restarted = of_host(document(103.0, figures("stable", sums={"Invocations": 300}), started=101.0))
    assert variant_rates(of_host(AFTER), restarted, restarted.endpoints["reader"], "stable").requests == 300
    created_anew = of_host(document(103.0, figures("stable", sums={"Invocations": 10})))
    assert (
        variant_rates(of_host(AFTER), created_anew, created_anew.endpoints["reader"], "stable").requests == 10
    )


def test_there_is_no_percentile_without_values() -> None:
    assert percentile({1.0: 5}, {1.0: 5}, 99) is None
    assert percentile({}, {3.0: 1, 1.0: 1}, 99) == 3.0


def test_the_tables_have_what_the_host_says() -> None:
    lines = drawn(of_host(BEFORE), of_host(AFTER))
    [told] = [line for line in lines if line[:3] == ["halimede", "host", "9"]]
    assert " ".join(told[3:]) == (
        "at here:8088 account 123456789012 eu-north-1 up 0:01:02 1 of 3 endpoints in service "
        "1 of 1 instances in service"
    )
    busiest = "reader Updating stable 56% 100 2 1 9 0.1 5 - 1/2 - 0 2"
    variants = lines[3 : lines.index(next(line for line in lines if line[0] == "updating"))]
    assert [" ".join(line) for line in variants] == [
        busiest,
        "tried 14% 0 - - - - 0 - 1/1 - 0 0",
        "copy (shadow) copies 10 - - - - 0 3 1/1 - 0 0",
        "failed Failed - - 0 - - - - - - 0/0 - 0 0",
        "queue InService only 100% 0 - - - - 0 17 1/1 - 0 0",
    ]
    assert ["new", "stable", "30%", "1/1", "0:00:12", "Baking"] in [line[:6] for line in lines]
    assert ["reader", "copy", "10", "1", "10", "90%", "75%"] in lines
    assert ["i-1", "reader", "stable", "-", "4321", "yes", "5", "-", "150", "12.5", "-"] in lines
    assert [" ".join(line) for line in lines[-2:]] == ["failed: no such image", "alarm errors: 0.5 > 0.2"]


def test_narrow_terminals_leave_out_what_matters_least() -> None:
    lines = [" ".join(line) for line in drawn(of_host(BEFORE), of_host(AFTER), width=80)]
    for line in (
        "endpoint status variant req/s p50 ms p99 ms instances 4xx/s 5xx/s",
        "reader Updating stable 100 1 9 1/2 0 2",
        "i-1 reader stable - 4321 yes 5 150 12.5",
    ):
        assert line in lines


def test_rows_that_do_not_fit_are_counted() -> None:
    lines = [" ".join(line) for line in drawn(of_host(BEFORE), of_host(AFTER), most=10)]
    assert "2 more variants" in lines


def test_a_host_without_endpoints() -> None:
    empty = {**document(1.0), "endpoints": [], "instances": [], "alarms": []}
    assert ["There", "are", "no", "endpoints."] in drawn(of_host(empty), of_host(empty))


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host with an endpoint whose canary bakes."""
    place = tmp_path_factory.mktemp("host")
    image = write_program(place)
    try:
        with start_host(place / "host", "--metric-period=1", "--describe-hold=1") as running:
            set_up(running, image)
            yield running
    finally:
        end_marked(place / "host", 0.0)


def set_up(host: HostProcess, image: Path) -> None:
    """An endpoint whose canary bakes, an asynchronous one, and one with a shadow variant."""
    sagemaker = host.client("sagemaker")
    sagemaker.create_model(ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": str(image)})
    only, copy = (
        {"VariantName": name, "ModelName": "m", "InstanceType": "ml.local.cpu", "InitialInstanceCount": 1}
        for name in ("only", "copy")
    )
    later = {"AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "s3://results/out"}}}
    shadows = {"ShadowProductionVariants": [copy]}
    for config, more in (("first", {}), ("next", {}), ("later", later), ("shadowed", shadows)):
        sagemaker.create_endpoint_config(EndpointConfigName=config, ProductionVariants=[only], **more)
    endpoints = {"reader": "first", "later": "later", "shadowed": "shadowed"}
    for name, config in endpoints.items():
        sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=config)
    for name in endpoints:
        waiter = sagemaker.get_waiter("endpoint_in_service")
        waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    policy = blue_green("CANARY", 3000, CanarySize=percent(30))
    sagemaker.update_endpoint(EndpointName="reader", EndpointConfigName="next", DeploymentConfig=policy)


@contextmanager
def load(host: HostProcess) -> Iterator[None]:
    """Requests to the endpoint, one after the other."""
    done = threading.Event()
    runtime = host.client("sagemaker-runtime")

    def invoke() -> None:
        while not done.is_set():
            answer = runtime.invoke_endpoint(EndpointName="reader", Body=b"x", ContentType="text/plain")
            answer["Body"].read()

    thread = threading.Thread(target=invoke)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def rows_of(text: str, *names: str) -> list[list[str]]:
    """Words of the lines that have all these names."""
    return [line.split() for line in text.splitlines() if all(name in line.split() for name in names)]


def test_a_running_host_is_shown_with_its_canary(host: HostProcess) -> None:

    def shown() -> "subprocess.CompletedProcess[str] | None":
        """What is shown, if the canary bakes and something is known of each instance."""
        found = call_text_command("top", "-u", host.url, "-n", "1", "-d", "500ms")
        assert (found.returncode, found.stderr) == (0, "")
        known = all(row[8] != "-" for row in rows_of(found.stdout, "reader", "yes"))
        return found if known and "Baking" in found.stdout else None

    with load(host):
        done = wait_until(shown, "the canary to be shown")
    assert done is not None
    assert "halimede host" in done.stdout
    [row] = rows_of(done.stdout, "reader", "Updating")
    rate, mean, p50, p99 = map(float, row[4:8])
    assert rate > 0
    assert mean > 0
    assert 0 < p50 <= p99
    assert ["reader", "first", "only", "70%"] in [each[:4] for each in rows_of(done.stdout, "first")]
    assert ["next", "only", "30%", "1/1"] in [each[:4] for each in rows_of(done.stdout, "Baking")]
    [row] = rows_of(done.stdout, "later", "InService")
    assert row[9:11] == ["0", "0"]  # nothing is in flight, nothing waits
    [row] = rows_of(done.stdout, "copy", "(shadow)")
    assert row[2] == "copies"
    assert row[9] == "0"
    instances = rows_of(done.stdout, "reader", "only", "yes")
    assert len(instances) == 2
    for each in instances:
        os.kill(int(each[4]), 0)  # there is such a process


def test_a_terminal_is_drawn_anew_until_interrupted(host: HostProcess) -> None:
    with on_terminal(["-m", "halimede", "top", "-u", host.url, "-d", "50ms"]) as terminal:
        terminal.wait_for("halimede host", times=3)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.finish() == 0
    assert (
        terminal.shown.count("\x1b[?1049h") == terminal.shown.count("\x1b[?1049l") == 1
    )  # the screen is given back


def test_another_region_is_shown(host: HostProcess) -> None:
    done = call_text_command("top", "-u", host.url, "-n", "1", "-d", "10ms", "--region", "eu-west-1")
    assert "eu-west-1" in done.stdout
    assert "There are no endpoints." in done.stdout


def test_a_host_with_keys_wants_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    keys = tmp_path / "keys.toml"
    keys.write_text('[keys.reader]\nsecret = "reader-secret-of-tests"\naccount = "123456789012"\n')
    with start_host(tmp_path / "host", f"--keys={keys}") as guarded:
        refused = call_text_command("top", "-u", guarded.url, "-n", "1")
        assert refused.returncode == 1
        assert (
            "refuses: The security token included in the request is invalid. The access key 'halimede'"
            in (refused.stderr)
        )
        assert "Set AWS_ACCESS_KEY_ID" in refused.stderr
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a wrong one")
        wrong = call_text_command("top", "-u", guarded.url, "-n", "1")
        assert "refuses: The request signature we calculated does not match" in wrong.stderr
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "reader-secret-of-tests")
        shown = call_text_command("top", "-u", guarded.url, "-n", "1", "-d", "10ms")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "account 123456789012" in shown.stdout


def test_a_host_without_a_console_says_so(tmp_path: Path) -> None:
    with start_host(tmp_path / "host", "--allow-console=false") as plain:
        done = call_text_command("top", "-u", plain.url, "-n", "1")
    assert done.returncode == 1
    assert "has no console (--allow-console=false)" in done.stderr


class Files(SimpleHTTPRequestHandler):
    """A server of files, which logs nothing."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("files", [(), ("v2",)])
def test_other_servers_are_told_apart(tmp_path: Path, files: tuple[str, ...]) -> None:
    for name in files:
        (tmp_path / name).write_text(json.dumps({"about": "something else"}))
    handler = partial(Files, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        done = call_text_command("top", "-u", f"127.0.0.1:{server.server_port}", "-n", "1")
        server.shutdown()
        thread.join()
    assert done.returncode == 1
    assert "is neither a server of KServe v2 nor a host of halimede" in done.stderr
    assert len(done.stderr.splitlines()) == 1
