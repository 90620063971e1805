"""Transform jobs of a host, put together."""

from pathlib import Path

from halimede.hosting.control.controller import Controller
from halimede.hosting.control.settings import Dependencies
from halimede.hosting.fetches import Fetches
from halimede.hosting.identity import TRANSFORM_JOBS, EndpointId
from halimede.hosting.store.objects import Objects
from halimede.hosting.store.sources import Places
from halimede.hosting.transform.dependencies import JobDependencies
from halimede.hosting.transform.fleet import InstanceFleet
from halimede.hosting.transform.job_record import JobRecord
from halimede.hosting.transform.state import TransformState
from halimede.hosting.transform.transforms import Transforms


def make_transforms(
    directory: Path, dependencies: Dependencies, controller: Controller, places: Places, fetches: Fetches
) -> Transforms:
    """The transform jobs of a host, known to its control plane.

    Args:
        directory: the host's.
        dependencies: what fleets are made with.
        controller: has the models, and the tags.
        places: where objects are.
        fetches: has the logs of what is fetched, in which jobs say how far they are.
    """

    def tell(record: JobRecord, line: str) -> None:
        fetches.note(EndpointId(record.account, record.region, TRANSFORM_JOBS), record.name, line)

    jobs = JobDependencies(
        TransformState(directory / "transform.db"),
        lambda account: Objects(places, account),
        lambda *of: InstanceFleet(dependencies, *of),
        directory / "transform",
        tell,
    )
    transforms = Transforms(
        jobs,
        controller.model,
        dependencies.resources,
        controller.put_tags,
        dependencies.settings.describe_hold_s,
    )
    controller.attach(transforms)
    return transforms
