"""The life of a server process: open the sockets, load the models, serve, drain."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from halimede import __version__
from halimede.cli import tuning
from halimede.cli.check.checks import backend_settings, cache_settings, metrics_switches, model_memory_budget
from halimede.cli.check.host_policies import host_policies
from halimede.cli.check.rate_limits import resource_limits
from halimede.cli.cloud import model_repositories
from halimede.cli.endpoints import endpoints
from halimede.cli.front_ends import make_front_ends, relayed
from halimede.cli.loading import LoadingStep, LoadingTimes, StartFailures
from halimede.cli.logs import log_table
from halimede.cli.options import SETTINGS, ServeOptions
from halimede.cli.progress import progress_bars
from halimede.cli.request_log import open_request_log
from halimede.cli.services import GRPC, HTTP, SAGEMAKER, VERTEX_AI, services
from halimede.cli.signals import StopSignals, exit_now
from halimede.cli.tables import table
from halimede.cli.trace_options import trace_config
from halimede.core import tasks
from halimede.core.clock import SECOND, Clock, LoopClock, Timer
from halimede.core.errors import HalimedeError, InvalidArgumentError, UnavailableError
from halimede.engine.engine import Engine
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.settings import ControlMode, EngineSettings
from halimede.frontends.log_settings import LogControl
from halimede.frontends.request_log.log import RequestLog
from halimede.frontends.traffic import Traffic
from halimede.frontends.vertex.start import default_model_problem
from halimede.net.server import ListenError, Server

logger = logging.getLogger("halimede")

_LAST_WORDS_S = 2.0
"""How long connections have, once nothing is in flight, to send what they still hold."""

_OPEN = {
    HTTP: "HTTP service connections",
    GRPC: "gRPC service connections and inference handlers",
    SAGEMAKER: "SageMaker service connections",
    VERTEX_AI: "Vertex AI service connections",
}
"""What is open of a protocol, in tritonserver's words."""


class Process:
    """Whose process the server runs in: its own, whose signals stop it.

    Attributes:
        is_own: nothing else runs there, so that the server may tune it, and end it.
    """

    is_own = True

    def signals(self, loop: asyncio.AbstractEventLoop, *, delay: bool) -> StopSignals:
        """What will stop the server."""
        return StopSignals(loop, delay=delay)

    def started(self, engine: Engine, ports: Mapping[str, int]) -> None:
        """The engine is there, and the endpoints are open, at these ports. Nothing is loaded yet."""

    def loaded(self, engine: Engine, *, all_ready: bool) -> None:
        """The models have loaded, or failed to."""


async def serve(options: ServeOptions, log: LogControl, process: Process | None = None) -> int:
    """Serve until a signal says to stop; the result is the exit status.

    Args:
        options: what the flags say.
        log: by which clients change the log.
        process: whose process it is; None for the server's own.

    Raises:
        click.UsageError: an option is malformed.
    """
    process = process or Process()
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    settings = engine_settings(options)
    signals = process.signals(loop, delay=options.drain_delay_secs > 0)
    requests = open_request_log(options)
    try:
        lifecycle = Lifecycle(settings, clock, loop)
        if lifecycle.cache is not None:
            await lifecycle.cache.begin()
        engine = Engine(settings, clock, lifecycle)
        traffic: list[Traffic] = []
        server = await open_server(options, engine, clock, log, requests, traffic)
    except ListenError as error:
        logger.error("%s", error)
        return 1
    except (InvalidArgumentError, UnavailableError) as error:
        raise click.UsageError(str(error)) from None
    process.started(engine, server.ports)
    log_table(logger, "Options", options_table(options))

    # What exists when the models have loaded is never looked at again. Models that may be unloaded must not
    # be part of it.
    models_stay = settings.control_mode is ControlMode.NONE
    if process.is_own and not models_stay:
        tuning.tune_garbage_collector()
    failures = StartFailures()
    lifecycle.on_progress.extend((LoadingTimes(clock, lifecycle.memory.ledger), failures))
    loading = tasks.submit(_load(lifecycle, failures))
    stopping = tasks.submit(signals.stop.wait())
    with progress_bars(shown=process.is_own), LoadingStep(lifecycle.on_progress):
        await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if loading.done():
        process.loaded(engine, all_ready=loading.result())
    failed = loading.done() and not loading.result() and options.exit_on_error
    problem = _vertex_problem(options, engine) if loading.done() and not failed else ""
    if not (failed or problem):
        if process.is_own and models_stay and loading.done():
            tuning.tune_garbage_collector()
        await stopping
        if loading.done():
            await stay_open(lifecycle, server, signals, options.drain_delay_secs)

    signals.hurry.set()
    stopping.cancel()
    drained = await drain(lifecycle, server, clock, options.exit_timeout_secs, traffic)
    if requests is not None:
        requests.close()
    engine.tracing.close(_LAST_WORDS_S)
    if not drained:
        logger.error("Exit timeout expired. Exiting immediately.")
        if process.is_own:
            exit_now(1)
        return 1
    await loading
    await engine.hosted.close()
    clock.close()
    if failed:
        failures.log()
    if problem:
        logger.error("%s", problem)
    return int(failed or bool(problem))


async def open_server(
    options: ServeOptions,
    engine: Engine,
    clock: Clock,
    log: LogControl,
    requests: RequestLog | None,
    traffic: list[Traffic],
) -> Server:
    """Open the endpoints, in this process or in front ends; `traffic` takes what passes through them.

    Raises:
        ListenError: an address cannot be had.
        InvalidArgumentError: an option is malformed.
    """
    served = services(options, engine, log, requests, traffic)
    if options.front_ends == 1:
        server = Server()
        opened = endpoints(options, served, clock, requests, traffic)
    else:
        front_ends = make_front_ends(options, engine, served, log, requests, traffic)
        server = Server(front_ends)
        opened = relayed(endpoints(options, served, clock, requests, []), front_ends)
        front_ends.start()
    for endpoint in opened:
        await server.open(endpoint)
    return server


def _vertex_problem(options: ServeOptions, engine: Engine) -> str:
    """Why Vertex AI cannot be served with the models that have loaded; "" if it can, or is not to be."""
    on_demand = engine.settings.control_mode is ControlMode.ON_DEMAND  # the first prediction loads its model
    if not options.allow_vertex_ai or on_demand:
        return ""
    return default_model_problem(engine, options.vertex_ai_default_model)


def engine_settings(options: ServeOptions) -> EngineSettings:
    """What the options say of the engine."""
    repositories, cloud = model_repositories(options)
    return EngineSettings(
        model_repositories=repositories,
        model_namespacing=options.model_namespacing,
        control_mode=ControlMode(options.model_control_mode),
        repository_poll_secs=options.repository_poll_secs,
        load_models=tuple(dict.fromkeys(options.load_model)),
        model_memory_budget=model_memory_budget(options),
        ondemand_timeout_secs=options.ondemand_timeout_secs,
        auto_complete_config=not (options.disable_auto_complete_config or options.strict_model_config),
        model_config_name=options.model_config_name,
        load_threads=options.model_load_thread_count,
        load_retry_count=options.model_load_retry_count,
        cpu_fallback=options.cpu_fallback,
        strict_readiness=options.strict_readiness,
        busy_wait_percent=options.busy_wait,
        max_inflight_requests=options.max_inflight_requests,
        exit_on_error=options.exit_on_error,
        backend_config=backend_settings(options.backend_config),
        backend_directory=Path(options.backend_directory).absolute() if options.backend_directory else None,
        repoagent_directory=Path(options.repoagent_directory).absolute(),
        repoagent_timeout_secs=options.repoagent_timeout_secs,
        hosted_root=Path(options.sagemaker_model_directory).absolute(),
        host_policies=host_policies(options.host_policy),
        verbose=options.log_verbose,
        summary_latencies=metrics_switches(options.metrics_config)["summary_latencies"],
        cache=cache_settings(options),
        rate_limit=options.rate_limit != "off",
        rate_limit_resources=resource_limits(options.rate_limit_resource),
        tracing=trace_config(options),
        cloud=cloud,
    )


async def _load(lifecycle: Lifecycle, failures: StartFailures) -> bool:
    """Load what is to be loaded at start, and log what has become of it: whether all of it is READY."""
    try:
        loaded = await lifecycle.start()
    except HalimedeError as error:
        logger.error("%s", error)
        failures.add(str(error))
        return False
    finally:
        lifecycle.on_progress.remove(failures)
    rows = []
    for row in lifecycle.index():
        name = f"{row.namespace}::{row.name}" if row.namespace else row.name
        status = f"{row.state}: {row.reason}" if row.reason else row.state
        rows.append((name, row.version or "", status))
    log_table(logger, "Models", table(("Model", "Version", "Status"), rows))
    return loaded


async def stay_open(lifecycle: Lifecycle, server: Server, signals: StopSignals, delay_s: int) -> None:
    """Answer for `delay_s`, or until a signal ends that, but be ready no more, and ask clients to leave."""
    if not delay_s:
        return
    lifecycle.leave()
    server.leave()
    with suppress(TimeoutError):
        await asyncio.wait_for(signals.hurry.wait(), delay_s)


async def drain(
    lifecycle: Lifecycle, server: Server, clock: Clock, timeout_s: int, traffic: Sequence[Traffic]
) -> bool:
    """Take no more connections and requests, and answer those that there are: whether `timeout_s` was enough."""
    deadline = clock.now() + timeout_s * SECOND
    server.stop_accepting()
    with reported(traffic, clock, deadline):
        if not await lifecycle.stop(timeout_s):
            return False
    left = max(0.0, (deadline - clock.now()) / SECOND)
    await server.close(min(left, _LAST_WORDS_S))
    return True


@contextmanager
def reported(traffic: Sequence[Traffic], clock: Clock, deadline: int) -> Iterator[None]:
    """Log at once and then each second which connections are open, and how long the server waits for them."""
    timer: Timer | None = None

    def report() -> None:
        nonlocal timer
        seconds = max(0, -(-(deadline - clock.now()) // SECOND))
        for each in traffic:
            if each.open:
                logger.info("Timeout %d: Found %d %s", seconds, each.open, _OPEN[each.protocol])
        timer = clock.call_at(clock.now() + SECOND, report)

    report()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()


def options_table(options: ServeOptions) -> str:
    """The options that differ from their defaults, and the version."""
    rows = [("version", __version__)]
    for each in SETTINGS:
        value = getattr(options, each.attribute, each.default)
        if value != each.default:
            text = ", ".join(map(each.show, value)) if each.repeatable else str(value)
            rows.append((each.name, text.lower() if isinstance(value, bool) else text))
    return table(("Option", "Value"), rows)
