"""What is said of a cluster, or a node of it, that cannot be used."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from ray._private.utils import check_version_info
from ray.exceptions import ActorDiedError, RayTaskError

from halimede.hosting.errors import ApiError
from halimede.hosting.substrates.images import Images
from halimede.hosting.substrates.ray import engine as engine_module
from halimede.hosting.substrates.ray import substrate as substrate_module
from halimede.hosting.substrates.ray.engine_process import EngineError
from halimede.hosting.substrates.ray.messages import UnusableNodeError
from halimede.hosting.substrates.ray.settings import RaySettings
from halimede.hosting.substrates.ray.substrate import RaySubstrate
from tests.hosting.control.fakes import on_loop
from tests.hosting.substrates.instances import Exits, request_for
from tests.hosting.substrates.ray.engines import FakeEngine, substrate_with
from tests.hosting.substrates.ray.fake_ray import FakeRay, engine_on
from tests.hosting.substrates.ray.test_engine import launch_in

IMPORT_FAILED = """\
\x1b[36mray::InstanceActor.__init__()\x1b[39m (pid=7, ip=10.0.0.7, actor_id=01, repr=<TemporaryActor>)
RuntimeError: The actor with name InstanceActor failed to import on the worker. This may be because needed library \
dependencies are not installed in the worker environment:

Traceback (most recent call last):
  File "function_manager.py", line 700, in _load_actor_class_from_gcs
    actor_class = pickle.loads(pickled_class)
ModuleNotFoundError: No module named 'halimede'
"""


def test_an_address_at_which_nothing_listens_is_refused_before_the_host_says_that_it_has_started(
    tmp_path: Path,
) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else can
        address = f"127.0.0.1:{unheard.getsockname()[1]}"
        flags = [
            "--substrate=ray",
            f"--ray-address={address}",
            "--port=0",
            f"--directory={tmp_path / 'host'}",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "halimede", "host", *flags], capture_output=True, text=True, check=False
        )
    assert done.returncode == 1, done
    assert f"nothing can be reached at {address} (" in done.stderr
    assert "--ray-address must be the address and port of Ray's head" in done.stderr
    assert "Started" not in done.stderr


@on_loop
async def test_a_head_that_does_not_answer_is_given_up_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "open_connection", connect)
    monkeypatch.setattr(substrate_module, "_CHECKING_S", 0.01)
    with pytest.raises(EngineError, match=r"at 10.255.255.1:6379 \(no answer within 0.01 seconds\)"):
        await RaySubstrate(tmp_path, Images(), 8.0, RaySettings("10.255.255.1:6379")).check()


def test_versions_of_both_sides_are_told() -> None:
    with pytest.raises(RuntimeError) as raised:
        check_version_info({"ray_version": "1.2.3", "python_version": "3.1.2"}, "node 10.0.0.7", True)
    python = ".".join(map(str, sys.version_info[:3]))
    assert engine_module._why_refused(raised.value) == (  # noqa: SLF001 - what its program tells of an error
        "Version mismatch: The cluster was started with: Ray: 1.2.3; Python: 3.1.2; "
        f"This process on node 10.0.0.7 was started with: Ray: {ray.__version__}; Python: {python}"
    )


@on_loop
async def test_a_node_without_the_product_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeRay()
    failed = RayTaskError("__init__", IMPORT_FAILED, RuntimeError("failed"), pid=7, ip="10.0.0.7")
    fake.answers["where"] = fake.answers["stop"] = [ActorDiedError(failed)]
    engine, _ = engine_on(fake, monkeypatch)
    with pytest.raises(UnusableNodeError) as raised:
        await engine.launch(launch_in(tmp_path), tmp_path, 1.0, spread=True)
    assert str(raised.value) == (
        "the node 10.0.0.7 cannot run Halimede: ModuleNotFoundError: No module named 'halimede'. Install the host's "
        "version of Halimede there, in the Python that runs Ray"
    )


@on_loop
async def test_an_instance_is_not_tried_again_and_again_on_a_node_without_the_product(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine()
    engine.launched = [UnusableNodeError("the node 10.0.0.7 cannot run Halimede")]
    async with substrate_with(tmp_path, engine, monkeypatch) as substrate:
        await substrate.start(Exits().__setitem__)
        with pytest.raises(ApiError) as raised:
            await substrate.launch(request_for("image"))
        assert raised.value.message == "the node 10.0.0.7 cannot run Halimede"
