import csv
import json
import os
import pty
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from halimede.cli.bench.options import OPTIONS
from halimede.cli.bench.refused import REFUSED
from halimede.cli.main import halimede
from tests.support.server import ServerProcess, run_command

PERF_ANALYZER = """
--async --binary-search --bls-composing-models --collect-metrics --concurrency-range --endpoint
--grpc-compression-algorithm --input-data --input-tensor-format --latency-threshold --log-frequency
--max-threads --max-trials --measurement-interval --measurement-mode --measurement-request-count
--metrics-interval --metrics-url --model-repository --model-signature-name --num-of-sequences
--output-shared-memory-size --output-tensor-format --percentile --periodic-concurrency-range
--profile-export-file --request-count --request-distribution --request-intervals --request-parameter
--request-period --request-rate-range --sequence-id-range --sequence-length --sequence-length-variation
--serial-sequences --service-kind --shape --shared-memory --ssl-grpc-certificate-chain-file
--ssl-grpc-private-key-file --ssl-grpc-root-certifications-file --ssl-grpc-use-ssl
--ssl-https-ca-certificates-file --ssl-https-client-certificate-file --ssl-https-client-certificate-type
--ssl-https-private-key-file --ssl-https-private-key-type --ssl-https-verify-host --ssl-https-verify-peer
--stability-percentage --streaming --string-data --string-length --sync --trace-count --trace-level
--trace-rate --triton-server-directory --verbose-csv -H -b -f -i -m -u -v -x --data-directory -c -d -t -z -p
-s -r -l -a -n
"""
QUICK = ("-p", "150", "--warm-up", "50ms", "-s", "1000", "--processes", "1")


def test_every_option_of_perf_analyzer_is_taken_or_refused() -> None:
    command = halimede.get_command(None, "bench")  # type: ignore[arg-type]
    assert command is not None
    taken = {name for parameter in command.params for name in parameter.opts}
    assert len(OPTIONS) <= len(taken)
    assert [name for name in PERF_ANALYZER.split() if (name in taken) == (name in REFUSED)] == []


def test_a_sweep_is_shown_and_written(server: ServerProcess, tmp_path: Path) -> None:
    files = {form: tmp_path / f"result.{form}" for form in ("csv", "json", "html")}
    done = run_command(
        "bench", "-m", "numbers", "-u", server.http, "--concurrency-range", "1:4:3", *QUICK,
        "-f", str(files["csv"]), "--json", str(files["json"]), "--html", str(files["html"]),
        timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "numbers over HTTP" in done.stdout
    assert "| 4 at once |" in done.stdout
    assert "| numbers 1" in done.stdout
    lines = list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert [line["Figure"] for line in lines] == ["1", "4"]
    result = json.loads(files["json"].read_text())
    assert float(lines[1]["Requests/Second"]) == pytest.approx(
        result["levels"][1]["requests_per_second"], abs=0.1
    )
    page = files["html"].read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    pictures = page.split("<svg")[1:]
    assert len(pictures) == 6
    for picture in pictures:
        ET.fromstring("<svg" + picture.partition("</svg>")[0] + "</svg>")


def test_exceeded_limits_are_named_and_fail(server: ServerProcess) -> None:
    arguments = ["bench", "-m", "numbers", "-u", server.http, *QUICK]
    good = run_command(*arguments, "--p99", "10s", "--min-throughput", "1", "--max-errors", "0", timeout=60)
    assert good.returncode == 0
    bad = run_command(*arguments, "--p99", "1us", "--min-throughput", "1e9", timeout=60)
    assert bad.returncode == 3
    assert "Limit exceeded: 1 at once: p99 is" in bad.stderr
    assert "are fewer than 1,000,000,000" in bad.stderr


def test_binary_search_finds_the_highest_load_within_the_threshold(
    server: ServerProcess, tmp_path: Path
) -> None:
    path = tmp_path / "result.json"
    # each request takes 40 ms, one at a time: three at once take 120 ms
    done = run_command(
        "bench", "-m", "slow", "-u", server.http, "--concurrency-range", "1:8", "--binary-search", "-l", "140",
        *QUICK, "-p", "400", "--json", str(path), timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    means = {level["figure"]: level["latency_ms"]["mean"] for level in json.loads(path.read_text())["levels"]}
    highest = max(figure for figure, mean in means.items() if mean <= 140)
    assert highest <= 3
    assert means[highest + 1] > 140


def test_progress_is_shown_in_a_terminal(server: ServerProcess) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "halimede", "bench", "-m", "numbers", "-u", server.http, *QUICK]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                break
            shown += part
        assert process.wait(60) == 0
    os.close(ours)
    assert b"1 at once, warm-up: " in shown
    assert b"window 3: " in shown
    assert shown.endswith(b"\r\x1b[K")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--max-threads", "4"], "--max-threads of perf_analyzer is not supported: connections share"),
        (["--shared-memory=system"], "--shared-memory of perf_analyzer is not supported"),
        ([], "Which model? Give its name with -m"),
        (["-m", "x", "--concurrency-range", "0"], "is neither start:end:step"),
        (["-m", "x", "--concurrency-range", "4:1"], "is neither start:end:step"),
        (["-m", "x", "--concurrency-range", "1", "--rate", "5"], "exclude each other"),
        (["-m", "x", "--shape", "IN"], "does not have the form NAME:3,224,224"),
        (["-m", "x", "--request-parameter", "a:b"], "does not have the form name:value:type"),
        (["-m", "x", "-H", "name"], "does not have the form Name:value"),
        (["-m", "x", "--p99", "20"], "'20' is no time: write 20ms"),
        (["-m", "x", "--max-errors", "some"], "'some' is no limit of errors"),
        (["-m", "x", "--sequence-id-range", "9:1"], "does not have the form start:end"),
        (["-m", "x", "--input-data", "missing.json"], "there is no such file"),
        (["-m", "x", "-u", "ftp://x"], "'ftp://x' is no address"),
        (["--service-kind", "sagemaker"], "needs --input-data"),
        (["--service-kind", "openai", "-m", "x", "-i", "grpc"], "is spoken over HTTP"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], reason: str) -> None:
    done = CliRunner().invoke(halimede, ["bench", "-v", *arguments])
    assert done.exit_code in (1, 2)
    assert reason in done.output
