"""What the host is told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from halimede.hosting.access.keys import Key
from halimede.hosting.access.program_images import ProgramImages
from halimede.hosting.capture.settings import CaptureSettings
from halimede.hosting.control.settings import ControlSettings
from halimede.hosting.identity import Caller
from halimede.hosting.metering.log_space import LogSettings
from halimede.hosting.metering.pace import Pace
from halimede.hosting.notifications.addresses import LoopbackSubscriptions
from halimede.hosting.routing.residency.settings import ResidencySettings
from halimede.hosting.routing.settings import InvocationSettings
from halimede.hosting.substrates.base import Resources
from halimede.hosting.substrates.images import ImageRule
from halimede.hosting.substrates.ray.settings import RaySettings


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What the host is told.

    Attributes:
        directory: where everything is kept.
        machine: what instances may use together.
        address: where it listens.
        port: where it listens; 0 for any free port.
        router_processes: how many processes answer invocations; 1 for the host's own, which does everything else too.
        receive_bytes: memory that request bodies may take together while they are received, in bytes.
        keys: access keys, by id; None to let anybody in.
        allowed_hosts: further names of this host, which `Host` headers of requests may say.
        allowed_origins: origins of the web pages that may send requests.
        program_images: from whom paths of programs are accepted as images.
        loopback_subscriptions: from whom topics' endpoints at addresses of this machine alone are accepted.
        caller: whose account and region count where a request does not say.
        instance_types: further instance types.
        image_rules: which programs stand for images.
        image_rules_file: where those are from.
        oversubscription: how many times the machine's processors instances may have been given.
        cpu_fallback: models for GPUs run on processors in instances that have no GPU.
        s3_endpoint: the S3 service that has the buckets which the host's own store has not; "" for none.
        buckets: bucket → the directory whose files are its objects, for model data.
        control: times of the control plane.
        invocation: limits of invocations.
        residency: how the models of multi-model endpoints are kept.
        logs: what the logs of instances may take on disk.
        ray: the Ray cluster on which instances run; None to run them on this machine.
        advertised: the address at which instances reach the host; "" for the one that it listens at.
        pace: how long AWS's periods take.
        capture: what data capture may take.
        console: whether there is a console.
    """

    directory: Path
    machine: Resources
    address: str = "127.0.0.1"
    port: int = 8088
    router_processes: int = 1
    receive_bytes: int = 1 << 30
    keys: Mapping[str, Key] | None = None
    allowed_hosts: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()
    program_images: ProgramImages = ProgramImages.LOOPBACK
    loopback_subscriptions: LoopbackSubscriptions = LoopbackSubscriptions.LOOPBACK
    caller: Caller = field(default_factory=Caller)
    instance_types: Mapping[str, Resources] = field(default_factory=dict)
    image_rules: Sequence[ImageRule] = ()
    image_rules_file: Path | None = None
    oversubscription: float = 8.0
    cpu_fallback: bool = False
    s3_endpoint: str = ""
    buckets: Mapping[str, Path] = field(default_factory=dict)
    control: ControlSettings = field(default_factory=ControlSettings)
    invocation: InvocationSettings = field(default_factory=InvocationSettings)
    residency: ResidencySettings = field(default_factory=ResidencySettings)
    logs: LogSettings = field(default_factory=LogSettings)
    ray: RaySettings | None = None
    advertised: str = ""
    pace: Pace = field(default_factory=Pace)
    capture: CaptureSettings = field(default_factory=CaptureSettings)
    console: bool = True
