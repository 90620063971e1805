"""Many models on one real server."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from halimede.hosting.identity import Scope
from halimede.hosting.routing.residency.residency import MultiModelResidency
from halimede.hosting.routing.residency.settings import ResidencySettings
from halimede.hosting.routing.table import Target
from halimede.hosting.specs import Container
from halimede.hosting.substrates.base import InstanceRequest, Resources, RunningInstance
from halimede.http1.upstream import UpstreamPool
from tests.hosting.residency.serving import PREFIX, Rig, Source, hash_of
from tests.hosting.residency.test_residency import ask, refusal
from tests.hosting.routing.serving import runtime, variant_route
from tests.support.sagemaker import Platform, start_serve
from tests.support.server import ServerProcess
from tests.support.waiting import wait_until

CONFIG = """
backend: "identity"
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
"""
BODY = json.dumps(
    {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [3], "data": [1, 2, 3]}]}
).encode()
ROOM = 5


class Served(Rig):
    """A rig before a real server."""

    platform: Platform


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What stands for `/opt/ml`."""
    found = tmp_path_factory.mktemp("server")
    (found / "models").mkdir()
    return found


@pytest.fixture(scope="module")
def server(base: Path) -> Iterator[ServerProcess]:
    """A server, which tests share."""
    with start_serve(base, SAGEMAKER_MULTI_MODEL="true") as running:
        yield running


@pytest.fixture
def platform(server: ServerProcess) -> Iterator[Platform]:
    """What the platform asks of the server, which has no models."""
    made = Platform(server)
    yield made
    loaded = made.keys()
    assert {made.unload(key).status for key in loaded} <= {200}


@pytest.fixture
def rig(tmp_path: Path, base: Path, server: ServerProcess, platform: Platform) -> Iterator[Served]:
    """A variant of one server, with memory for five models."""
    archive = tmp_path / "archive" / "model"
    (archive / "1").mkdir(parents=True)
    (archive / "config.pbtxt").write_text(CONFIG)
    models = base / "models" / tmp_path.name
    models.mkdir()
    source = Source(files=archive.parent)
    # what it takes is not measured, so that there is room for exactly so many
    settings = ResidencySettings(memory_share=1.0, footprint_factor=1.0)
    request = InstanceRequest(
        "i-0", *Scope(), "e", "AllTraffic", "f", "image", {}, None, True, Resources(1, ROOM * 1_000_000)
    )
    port = int(server.sagemaker.rpartition(":")[2])
    route = variant_route("AllTraffic", [], container=Container("image", PREFIX, multi_model=True))
    target = Target("i-0", UpstreamPool("127.0.0.1", port))
    route.targets.append(target)
    with runtime(route) as host:
        one = Served(host, source, [])
        one.platform = platform

        def join() -> None:
            route.residency = MultiModelResidency(route, source, one.models, settings)
            route.residency.joined(
                target, RunningInstance(request, "127.0.0.1", port, 0, models, str(models))
            )

        host.loop.call(join)
        try:
            yield one
            wait_until(lambda: one.is_settled)
        finally:
            host.loop.run(one.residency.close())


def outputs(answer: bytes) -> object:
    document = json.loads(answer)
    return document["model_name"], document["outputs"][0]["data"]


def test_models_are_loaded_and_unloaded_as_they_are_asked_for(rig: Served) -> None:
    names = [f"team/m{number}.tar.gz" for number in range(8)]
    for name in names:
        assert outputs(ask(rig, name, BODY)) == (name, [1, 2, 3])
    assert (
        rig.platform.keys() == {hash_of(name) for name in rig.loaded()} == {hash_of(n) for n in names[-ROOM:]}
    )
    assert outputs(ask(rig, names[0], BODY)) == (names[0], [1, 2, 3])
    assert rig.source.fetched == names
    assert (rig.models.loads, rig.models.unloads) == (9, 4)


def test_fifty_first_requests_are_one_load(rig: Served) -> None:
    with ThreadPoolExecutor(50) as threads:
        answers = list(threads.map(lambda _: outputs(ask(rig, "a.tar.gz", BODY)), range(50)))
    assert answers == [("a.tar.gz", [1, 2, 3])] * 50
    assert (rig.models.downloads, rig.models.loads) == (1, 1)


def test_an_archive_that_the_server_does_not_load(rig: Served, tmp_path: Path) -> None:
    (tmp_path / "archive" / "model" / "config.pbtxt").write_text('backend: "none"')
    code, status, message = refusal(rig, "a.tar.gz")
    assert (code, status) == ("ModelError", 424)
    assert message.startswith("Failed to load model 'a.tar.gz' (400): ")
    assert rig.platform.keys() == set()
