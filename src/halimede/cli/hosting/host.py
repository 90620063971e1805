"""`halimede host`: SageMaker's hosting service on this machine, until a signal says to stop."""

import asyncio
import importlib
import importlib.util
import logging
import os
import re
import shlex
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from halimede.cli import logs, tuning
from halimede.cli.check import checks
from halimede.cli.hosting.keys import GENERATE, HostKeys, find_keys
from halimede.core.gpus import visible_gpus
from halimede.core.memory import trim_memory
from halimede.core.origins import is_local, is_origin
from halimede.frontends.log_settings import LogSettings
from halimede.hosting.addresses import url_of

if TYPE_CHECKING:
    from halimede.hosting.settings import HostSettings
    from halimede.hosting.substrates.ray.settings import RaySettings

logger = logging.getLogger("halimede")

_MIB = 1 << 20

_REGION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

_EXTRA = ("awscrt", "boto3", "botocore", "obstore", "regex")
_LATER = ("boto3", "obstore")
"""Those of them that are imported only where another S3 service is used."""


@click.command()
@click.option("--address", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8088, show_default=True, help="Port to listen on."
)
@click.option("--router-processes", type=click.IntRange(1, 64), default=1, show_default=True,
              help="Number of processes that answer invocations; with 1, one process does everything.")  # fmt: skip
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("halimede-host"),
    show_default=True,
    help="Directory for all data: state, objects, logs, metrics.",
)
@click.option("--region", default="us-east-1", show_default=True, help="Region of requests without one.")
@click.option("--account", default="000000000000", show_default=True, help="Account of requests without one.")
@click.option(
    "--keys",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file of access keys; signatures are then verified. HALIMEDE_HOST_KEYS=ID:SECRET sets a key too.",
)
@click.option(
    "--generate-key",
    type=click.Choice(GENERATE),
    default="network",
    show_default=True,
    help="When to generate and print a key on the first start, if no key is given: if the host listens beyond "
    "loopback (network), always or never. Without a key, everyone may do anything.",
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Additional name of this host, for requests from its own machine; * for any. Repeatable.",
)
@click.option(
    "--allow-origin",
    "allowed_origins",
    multiple=True,
    metavar="ORIGIN",
    help="Origin of web pages that may send requests, such as https://app.example; * for any. Repeatable.",
)
@click.option(
    "--allow-program-images",
    type=click.Choice(["loopback", "all", "none"]),
    default="loopback",
    show_default=True,
    help="Which clients may create models whose image is the path of a program.",
)
@click.option(
    "--allow-loopback-subscriptions",
    type=click.Choice(["loopback", "all", "none"]),
    default="loopback",
    show_default=True,
    help="Which clients may subscribe endpoints on this machine's loopback and link-local addresses to topics.",
)
@click.option(
    "--catalogue",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file with additional instance types.",
)
@click.option(
    "--image-rules",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file that maps images to programs.",
)
@click.option("--oversubscription", type=click.FloatRange(min=0.1), default=8.0, show_default=True,
              help="Ratio of processors given to instances to processors of the machine.")  # fmt: skip
@click.option(
    "--cpu-fallback",
    is_flag=True,
    help="Run instance groups of KIND_GPU on processors, with a warning, in instances that have no GPU.",
)
@click.option(
    "--s3-endpoint",
    default="",
    metavar="URL",
    help="S3 service for buckets that the host's own store does not have; aws for Amazon's.",
)
@click.option(
    "--bucket",
    "buckets",
    multiple=True,
    metavar="NAME=DIRECTORY",
    help="Directory whose files are model data at s3://NAME/. Repeatable.",
)
@click.option("--payload-mib", type=click.IntRange(1), default=25, show_default=True,
              help="Maximum body size of an invocation, in MiB.")  # fmt: skip
@click.option("--receive-memory-budget", default="20%", show_default=True,
              help="Memory for request bodies that are being received: a size, such as 1GiB, or a share.")  # fmt: skip
@click.option("--invocation-timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True,
              help="Maximum time for an instance to answer, in seconds.")  # fmt: skip
@click.option("--describe-hold", type=click.FloatRange(0, 50), default=20.0, show_default=True,
              help="Maximum time in seconds that DescribeEndpoint waits for a change of the endpoint.")  # fmt: skip
@click.option("--instance-log-mib", type=click.IntRange(1), default=100, show_default=True,
              help="Maximum size of an instance's log on disk, in MiB; the oldest lines are deleted.")  # fmt: skip
@click.option("--total-log-mib", type=click.IntRange(1), default=10_240, show_default=True,
              help="Maximum size of all logs, in MiB; the oldest logs of deleted instances are deleted.")  # fmt: skip
@click.option("--metric-period", type=click.IntRange(1, 60), default=60, show_default=True,
              help="Length in seconds of AWS's 60-second period of metrics and alarms; a smaller value shortens all "
              "periods of alarms. Must divide 60.")  # fmt: skip
@click.option("--capture-file-seconds", type=click.FloatRange(min=0.1), default=60.0, show_default=True,
              help="Time in seconds covered by a file of captured invocations.")  # fmt: skip
@click.option("--capture-spool-mib", type=click.IntRange(1), default=1024, show_default=True,
              help="Disk space for captured invocations until they are in their bucket, in MiB.")  # fmt: skip
@click.option(
    "--keep-instances",
    is_flag=True,
    help="Keep instances running when the host stops; its next start takes them over.",
)
@click.option(
    "--substrate",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where instances run: as processes of this machine, or on the nodes of a Ray cluster.",
)
@click.option(
    "--ray-address",
    default="",
    metavar="ADDRESS",
    help="Ray cluster, as HOST:PORT or auto; this machine must be one of its nodes. By default the host starts a "
    "cluster on this machine.",
)
@click.option(
    "--placement",
    type=click.Choice(["spread", "pack"]),
    default="spread",
    show_default=True,
    help="With --substrate=ray: put the instances of a variant on different nodes, or fill one node after the other.",
)
@click.option(
    "--node-directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIRECTORY",
    help="With --substrate=ray: directory of nodes for models and logs of instances; by default halimede-nodes in "
    "the directory for temporary files.",
)
@click.option("--node-disk-gib", type=click.FloatRange(0), default=0.0, show_default=True,
              help="With --substrate=ray: disk space for models on a node, in GiB; 0 for no limit.")  # fmt: skip
@click.option("--capacity-wait", type=click.FloatRange(0), default=1800.0, show_default=True,
              help="With --substrate=ray: seconds that an instance may wait for a node with room.")  # fmt: skip
@click.option(
    "--advertise-address",
    default="",
    metavar="ADDRESS",
    help="Address at which instances reach this host; by default the address that it listens on.",
)
@click.option(
    "--allow-console", type=bool, default=True, show_default=True, help="Serve the console at /console."
)
@click.option("--print-env", is_flag=True, help="Print the environment variables for AWS's SDKs, and exit.")
def command(
    address: str,
    port: int,
    router_processes: int,
    directory: Path,
    region: str,
    account: str,
    keys: Path | None,
    generate_key: str,
    allowed_hosts: tuple[str, ...],
    allowed_origins: tuple[str, ...],
    allow_program_images: str,
    allow_loopback_subscriptions: str,
    catalogue: Path | None,
    image_rules: Path | None,
    oversubscription: float,
    cpu_fallback: bool,
    s3_endpoint: str,
    buckets: tuple[str, ...],
    payload_mib: int,
    receive_memory_budget: str,
    invocation_timeout: float,
    describe_hold: float,
    instance_log_mib: int,
    total_log_mib: int,
    metric_period: int,
    capture_file_seconds: float,
    capture_spool_mib: int,
    keep_instances: bool,
    substrate: str,
    ray_address: str,
    placement: str,
    node_directory: Path | None,
    node_disk_gib: float,
    capacity_wait: float,
    advertise_address: str,
    allow_console: bool,
    print_env: bool,
) -> int:
    """Run SageMaker's hosting service here: boto3 and the SageMaker SDKs create and invoke endpoints on this host."""
    _check_region(region)
    if substrate != "ray":
        _check_no_ray_flags()
    _check_metric_period(metric_period)
    account = _account(account)
    if print_env and not port:
        raise click.UsageError("--print-env: which port it will be is not known; give --port")
    origins = tuple(map(_origin, allowed_origins))
    settings = None if print_env else _settings(directory, catalogue, image_rules)
    found = find_keys(keys, generate_key, directory.absolute(), address, account, look=print_env)
    if settings is None:
        click.echo(environment(address, port, region, found))
        return 0
    ray = None
    if substrate == "ray":
        ray = _ray(ray_address, placement, node_directory, node_disk_gib, capacity_wait)
    settings = replace(
        settings,
        ray=ray,
        advertised=advertise_address,
        address=address,
        port=port,
        router_processes=router_processes,
        receive_bytes=checks.receive_memory_budget(receive_memory_budget),
        caller=replace(settings.caller, account=account, region=region),
        allowed_hosts=allowed_hosts,
        keys=found.keys,
        allowed_origins=origins,
        program_images=type(settings.program_images)(allow_program_images),
        loopback_subscriptions=type(settings.loopback_subscriptions)(allow_loopback_subscriptions),
        oversubscription=oversubscription,
        cpu_fallback=cpu_fallback,
        s3_endpoint=s3_endpoint,
        buckets=dict(map(_bucket, buckets)),
        invocation=replace(
            settings.invocation, payload_bytes=payload_mib * _MIB, timeout_s=invocation_timeout
        ),
        control=replace(settings.control, describe_hold_s=describe_hold),
        logs=replace(settings.logs, instance_bytes=instance_log_mib * _MIB, total_bytes=total_log_mib * _MIB),
        pace=replace(settings.pace, period_s=metric_period),
        console=allow_console,
        capture=replace(settings.capture, file_s=capture_file_seconds, spool_bytes=capture_spool_mib * _MIB),
    )
    logs.configure(LogSettings())
    tuning.keep_freed_memory()
    tuning.allow_open_files()
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(settings, found, keep_instances=keep_instances))


def environment(address: str, port: int, region: str, found: HostKeys, *, secret: bool = True) -> str:
    """The lines that a shell evaluates to point AWS's SDKs at the host.

    Args:
        address: where the host listens.
        port: where it listens.
        region: its region.
        found: its keys.
        secret: with a key, if one is to be shown.
    """
    variables = {"AWS_ENDPOINT_URL": url_of(address, port), "AWS_DEFAULT_REGION": region}
    if found.shown is not None:
        if secret:
            variables |= {"AWS_ACCESS_KEY_ID": found.shown.id, "AWS_SECRET_ACCESS_KEY": found.shown.secret}
    elif found.keys is None:
        # any will do; without one the SDKs look for some, and fail
        variables |= {"AWS_ACCESS_KEY_ID": "halimede", "AWS_SECRET_ACCESS_KEY": "halimede"}
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def _check_region(region: str) -> None:
    if not _REGION.fullmatch(region):
        raise click.UsageError(f"--region: '{region}' is no region; one is called like us-east-1")


def _check_metric_period(seconds: int) -> None:
    if 60 % seconds:
        divisors = ", ".join(str(each) for each in range(1, 61) if not 60 % each)
        raise click.UsageError(f"--metric-period: {seconds} does not divide 60; use one of {divisors}")


def _bucket(text: str) -> tuple[str, Path]:
    name, separator, directory = text.partition("=")
    if not name or not separator or not directory:
        raise click.UsageError(f"--bucket: expected NAME=DIRECTORY, got '{text}'")
    path = Path(directory)
    if not path.is_dir():
        raise click.UsageError(f"--bucket: '{directory}' is no directory")
    return name, path.absolute()


def _origin(text: str) -> str:
    if not is_origin(text):
        raise click.UsageError(
            f"--allow-origin: '{text}' is no origin; one is a scheme and a host, such as https://app.example"
        )
    return text


def _account(account: str) -> str:
    if len(account) != 12 or not account.isdecimal():
        raise click.UsageError(f"--account: '{account}' is no account; it has twelve digits")
    return account


def _check_extra() -> None:
    """Refuse to go on without what the extra brings."""
    try:
        with tuning.importing():
            importlib.import_module("halimede.hosting.host")
        for name in _LATER:
            if importlib.util.find_spec(name) is None:
                raise ModuleNotFoundError(name=name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0].lstrip("_")  # _awscrt is the compiled part of awscrt
        if missing not in _EXTRA:
            raise
        msg = (
            f'the host needs {missing}, which is not installed; install it with: pip install "halimede[host]"'
        )
        raise click.ClickException(msg) from None


def _settings(directory: Path, catalogue: Path | None, image_rules: Path | None) -> "HostSettings":
    """The settings that files make up."""
    _check_extra()
    from halimede.hosting.settings import HostSettings
    from halimede.hosting.substrates.catalogue import CatalogueError, read_catalogue, this_machine
    from halimede.hosting.substrates.images import ImageRulesError, read_image_rules

    try:
        return HostSettings(
            directory.absolute(),
            this_machine(len(visible_gpus())),
            instance_types={} if catalogue is None else read_catalogue(catalogue),
            image_rules=() if image_rules is None else read_image_rules(image_rules),
            image_rules_file=image_rules,
        )
    except (CatalogueError, ImageRulesError) as error:
        raise click.UsageError(str(error)) from None


_RAY_FLAGS = ("ray_address", "placement", "node_directory", "node_disk_gib", "capacity_wait")


def _check_no_ray_flags() -> None:
    """Refuse flags that have no effect without a cluster."""
    context = click.get_current_context()
    for name in _RAY_FLAGS:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} needs --substrate=ray")


def _ray(
    address: str, placement: str, directory: Path | None, disk_gib: float, capacity_wait: float
) -> "RaySettings":
    from halimede.hosting.substrates.ray.settings import RaySettings

    if importlib.util.find_spec("ray") is None:
        raise click.ClickException(
            '--substrate=ray needs ray, which is not installed; install it with: pip install "halimede[ray]"'
        )
    if address.startswith("ray://"):
        raise click.UsageError(
            f"--ray-address: '{address}' is an address for Ray's client, through which the host cannot work; run the "
            f"host on a node of the cluster, and give HOST:PORT or auto"
        )
    settings = RaySettings(
        address, placement == "spread", disk_bytes=int(disk_gib * (1 << 30)), capacity_wait_s=capacity_wait
    )
    return settings if directory is None else replace(settings, node_directory=directory.absolute())


async def _run(settings: "HostSettings", found: HostKeys, *, keep_instances: bool) -> int:
    """Host until a signal says to stop."""
    from halimede.hosting.control.database import DatabaseError
    from halimede.hosting.errors import ApiError
    from halimede.hosting.host import Host
    from halimede.hosting.lock import LockError
    from halimede.hosting.store.object_store import StoreError
    from halimede.hosting.substrates.ray.engine_process import EngineError
    from halimede.net.server import ListenError

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        host = Host(settings)
        port = await host.start()
        tuning.tune_garbage_collector()
    except ApiError as error:
        raise click.UsageError(error.message) from None
    except (LockError, ListenError, StoreError, DatabaseError, EngineError) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        raise click.ClickException(
            f"the host cannot start: cannot use{where}: {error.strerror or error}"
        ) from None
    trim_memory()  # AWS's service models leave 10 MB behind
    region = settings.caller.region
    logger.info("process %d; state is in %s", os.getpid(), settings.directory)
    if found.is_new:
        click.echo(
            f"# generated a key, which is in {found.path}\n{environment(settings.address, port, region, found)}"
        )
    else:
        variables = environment(settings.address, port, region, found, secret=False)
        logs.log_table(logger, "to point AWS's SDKs here:", variables)
        if found.path is not None:
            logger.info("signatures are verified; the key is in %s, and --print-env prints it", found.path)
    if found.keys is None and not is_local(settings.address):
        logger.warning(
            "anybody who reaches %s:%d may run code on this machine, since no signatures are verified; to close that, "
            "start without --generate-key=never, or with --keys",
            settings.address,
            port,
        )
    await stop.wait()
    logger.info("stopping: %s", "instances run on" if keep_instances else "instances are ended")
    await host.stop(keep_instances=keep_instances)
    return 0
