"""Options of `halimede bench`, most of them perf_analyzer's, and what they mean."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from halimede.bench.arrivals import Arrivals, read_intervals, read_trace
from halimede.bench.data import Making
from halimede.bench.limits import Limits, parse_errors
from halimede.bench.measure import Measuring
from halimede.bench.plan import Level, Sequences
from halimede.bench.workload import Kind, Workload
from halimede.cli.bench import values
from halimede.cli.bench.refused import REFUSED

_Function = TypeVar("_Function", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path, dir_okay=False)

OPTIONS = (
    click.option("-m", "--model", default="", metavar="NAME", help="Name of the model."),
    click.option("-x", "--model-version", default="", metavar="VERSION", help="Version of the model."),
    click.option(
        "-u", "--url", default="", metavar="HOST:PORT", help="Address of the server; https://... for TLS."
    ),
    click.option(
        "-i",
        "--protocol",
        type=click.Choice(["http", "grpc"], case_sensitive=False),
        default="http",
        show_default=True,
        help="Protocol for KServe.",
    ),
    click.option(
        "--service-kind",
        type=click.Choice([each.value for each in Kind]),
        default="triton",
        show_default=True,
        help="Kind of server; triton: any KServe v2 server.",
    ),
    click.option(
        "--endpoint",
        default="",
        metavar="PATH",
        help="OpenAI route, or name or path of a SageMaker endpoint.",
    ),
    click.option("--ca-file", type=_FILE, help="Certificates to trust instead of the system's."),
    click.option(
        "-H", "header", multiple=True, metavar="NAME:VALUE", help="Header to send with each request."
    ),
    click.option(
        "--request-parameter",
        multiple=True,
        metavar="NAME:VALUE:TYPE",
        help="Parameter to send with each request; TYPE is bool, int or string.",
    ),
    click.option("--streaming", is_flag=True, help="Use a gRPC stream, or server-sent events over HTTP."),
    click.option(
        "--concurrency-range",
        "--concurrency",
        type=values.Range(whole=True),
        default=None,
        help="Closed loop: number of requests in flight; a range, or a list such as 1,4,16. [default: 1]",
    ),
    click.option(
        "--request-rate-range",
        "--rate",
        type=values.Range(whole=False),
        default=None,
        help="Open loop: number of requests to send per second, regardless of answers.",
    ),
    click.option(
        "--request-distribution",
        type=click.Choice(["constant", "poisson"]),
        default="constant",
        show_default=True,
        help="Gaps between the requests of an open loop.",
    ),
    click.option("--request-intervals", type=_FILE, help="Open loop with recorded gaps in µs, one per line."),
    click.option("--trace", type=_FILE, help="Open loop with recorded times in seconds, one per line."),
    click.option(
        "--binary-search",
        is_flag=True,
        help="Search the range for the highest load within --latency-threshold.",
    ),
    click.option(
        "-l", "--latency-threshold", type=values.Duration("ms"), help="End a sweep at this latency (ms)."
    ),
    click.option(
        "-b",
        "--batch-size",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Rows per request.",
    ),
    click.option(
        "--input-data",
        default="random",
        show_default=True,
        metavar="SOURCE",
        help="random, zero, a JSON file in perf_analyzer's format, or a directory with a file per input (raw, .npy). "
        "SageMaker: the body, or a directory of bodies.",
    ),
    click.option(
        "--content-type",
        default="application/json",
        show_default=True,
        help="Content type of a SageMaker body.",
    ),
    click.option(
        "--shape",
        multiple=True,
        metavar="NAME:SIZES",
        help="Shape of an input with variable dimensions, such as INPUT:3,224,224.",
    ),
    click.option(
        "--string-length",
        type=click.IntRange(min=0),
        default=128,
        show_default=True,
        help="Length of random strings.",
    ),
    click.option("--string-data", metavar="TEXT", help="Text to send instead of random strings."),
    click.option(
        "--random-seed", type=int, default=0, show_default=True, help="The same seed sends the same data."
    ),
    click.option(
        "--sequence-length",
        type=click.IntRange(min=1),
        metavar="N",
        help="Requests per sequence. [default: 20]",
    ),
    click.option(
        "--sequence-length-variation",
        type=click.FloatRange(0, 100),
        default=20.0,
        show_default=True,
        metavar="PERCENT",
        help="Variation of sequence lengths.",
    ),
    click.option("--sequence-id-range", metavar="START:END", help="Range of correlation ids."),
    click.option(
        "--num-of-sequences",
        type=click.IntRange(min=1),
        default=4,
        show_default=True,
        help="Active sequences in an open loop; in a closed loop, the concurrency sets this.",
    ),
    click.option(
        "-p",
        "--measurement-interval",
        type=values.Duration("ms"),
        default="5000",
        show_default=True,
        help="Length of a window: 5000 (ms), 5s.",
    ),
    click.option(
        "--measurement-mode",
        type=click.Choice(["time_windows", "count_windows"]),
        default="time_windows",
        show_default=True,
        help="What ends a window.",
    ),
    click.option(
        "--measurement-request-count",
        type=click.IntRange(min=1),
        default=50,
        show_default=True,
        help="Requests per window, with count_windows.",
    ),
    click.option(
        "--request-count",
        type=click.IntRange(min=0),
        default=0,
        help="Send this number of requests, without windows.",
    ),
    click.option(
        "-s",
        "--stability-percentage",
        type=click.FloatRange(min=0),
        default=10.0,
        show_default=True,
        help="Stop when three windows differ by less than this from their average.",
    ),
    click.option(
        "-r",
        "--max-trials",
        type=click.IntRange(min=1),
        default=10,
        show_default=True,
        help="Maximum number of windows.",
    ),
    click.option(
        "--warm-up",
        type=values.Duration(),
        default="1s",
        show_default=True,
        help="Time of load before the first window.",
    ),
    click.option(
        "--percentile",
        type=click.FloatRange(0, 100),
        help="Latency percentile that must be stable. [default: the mean]",
    ),
    click.option(
        "--processes",
        type=click.IntRange(min=0),
        default=0,
        help="Processes that send the load. [default: half of the cores]",
    ),
    click.option(
        "--connections", type=click.IntRange(min=1), default=1024, show_default=True, help="Maximum number."
    ),
    click.option(
        "--timeout",
        type=values.Duration(),
        default="60s",
        show_default=True,
        help="Time without an answer that counts as an error.",
    ),
    click.option("--async", "-a", "_async", is_flag=True, hidden=True),
    click.option("--sync", "_sync", is_flag=True, hidden=True),
    click.option("-f", "--csv", "csv_file", type=_FILE, help="Write the figures as CSV."),
    click.option(
        "--json", "json_file", type=_FILE, help="Write figures and histograms, for `bench compare`."
    ),
    click.option("--html", "html_file", type=_FILE, help="Write a page with plots."),
    click.option("-v", "--verbose", is_flag=True, help="Show progress even without a terminal."),
    click.option(
        "--p50",
        type=values.Duration(),
        metavar="TIME",
        help="Limit: exit with 3 if p50 of a level exceeds it.",
    ),
    click.option("--p90", type=values.Duration(), metavar="TIME", help="The same for p90."),
    click.option("--p95", type=values.Duration(), metavar="TIME", help="The same for p95."),
    click.option(
        "--p99", type=values.Duration(), metavar="TIME", help="The same for p99, such as --p99 20ms."
    ),
    click.option(
        "--min-throughput",
        type=click.FloatRange(min=0),
        default=0.0,
        help="Limit: minimum requests per second.",
    ),
    click.option(
        "--max-errors", metavar="N", help="Limit: failed requests per level, as a number or a share (0.1%)."
    ),
)


def options(function: _Function) -> _Function:
    """Give a command all of them."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


class BenchGroup(click.Group):
    """A group that refuses perf_analyzer's other options by name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Look at the names of options first."""
        for argument in args:
            name = argument.partition("=")[0]
            if name in REFUSED:
                raise click.UsageError(f"{name} of perf_analyzer is not supported: {REFUSED[name]}", ctx)
        return super().parse_args(ctx, args)


def workload(given: dict[str, Any]) -> Workload:
    """What is measured.

    Raises:
        click.UsageError: an option has a wrong form, or one is missing.
    """
    kind = Kind(given["service_kind"])
    if not given["model"] and kind is not Kind.SAGEMAKER:
        raise click.UsageError("Which model? Give its name with -m")
    source = given["input_data"]
    made = source in ("random", "zero")
    if not made and not Path(source).exists():
        raise click.UsageError(f"--input-data {source}: there is no such file or directory")
    closed = (
        given["request_rate_range"] is None and given["request_intervals"] is None and given["trace"] is None
    )
    first, ids = values.id_range(given["sequence_id_range"])
    sequences = None
    if given["sequence_length"] or given["sequence_id_range"]:
        length = given["sequence_length"] or 20
        sequences = Sequences(length, given["sequence_length_variation"], first, ids)
    return Workload(
        kind,
        given["url"],
        given["protocol"] == "grpc",
        given["model"],
        given["model_version"],
        given["endpoint"],
        given["streaming"],
        Making(
            source == "zero",
            values.shapes(given["shape"]),
            given["batch_size"],
            given["string_length"],
            given["string_data"],
            given["random_seed"],
        ),
        None if made else Path(source),
        given["content_type"],
        values.parameters(given["request_parameter"]),
        values.headers(given["header"]),
        sequences,
        given["num_of_sequences"] if sequences and not closed else given["connections"],
        given["processes"],
        given["timeout"],
        given["ca_file"],
    )


def levels(given: dict[str, Any]) -> list[Level]:
    """The levels of load, in order.

    Raises:
        click.UsageError: more than one kind is given.
    """
    names = ("concurrency_range", "request_rate_range", "request_intervals", "trace")
    chosen = [name for name in names if given[name] is not None]
    if len(chosen) > 1:
        told = " and ".join(f"--{name.replace('_', '-')}" for name in chosen)
        raise click.UsageError(f"{told} exclude each other: a load is closed, or has rates, or is recorded")
    count = given["request_count"]
    if given["request_intervals"]:
        return [Level(arrivals=read_intervals(given["request_intervals"]), requests=count)]
    if given["trace"]:
        return [Level(arrivals=read_trace(given["trace"]), requests=count)]
    if given["request_rate_range"]:
        poisson = given["request_distribution"] == "poisson"
        return [
            Level(arrivals=Arrivals(rate, poisson), requests=count) for rate in given["request_rate_range"]
        ]
    return [Level(concurrency, requests=count) for concurrency in given["concurrency_range"] or (1,)]


def measuring(given: dict[str, Any], rows: int) -> Measuring:
    """How long is measured."""
    counted = given["measurement_mode"] == "count_windows"
    return Measuring(
        given["measurement_interval"],
        given["measurement_request_count"] if counted else 0,
        given["max_trials"],
        given["stability_percentage"] / 100,
        given["warm_up"],
        given["percentile"],
        rows,
    )


def limits(given: dict[str, Any]) -> Limits:
    """What the result has to keep to.

    Raises:
        BenchError: a limit of errors has a wrong form.
    """
    percentiles = [
        (percent, given[f"p{percent:g}"])
        for percent in (50.0, 90.0, 95.0, 99.0)
        if given[f"p{percent:g}"] is not None
    ]
    errors, share = parse_errors(given["max_errors"]) if given["max_errors"] else (None, None)
    return Limits(percentiles, given["min_throughput"], errors, share)
