"""Instances as processes: what they see, how they end, and what is left of them."""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.substrates import local
from halimede.hosting.substrates.base import Resources
from halimede.hosting.substrates.processes import marked
from tests.hosting.control.fakes import on_loop
from tests.hosting.substrates.instances import (
    MACHINE,
    SMALL,
    answers,
    entries,
    lives,
    needs_namespaces,
    open_files,
    request_for,
    substrate_in,
    text_of,
    wait_for,
    write_serve,
    zombies,
)
from tests.support.waiting import wait_until_async


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not end is killed soon."""
    monkeypatch.setattr(local, "_PATIENCE_S", 0.05)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """User namespaces are not allowed."""
    monkeypatch.setattr(local, "can_isolate", lambda: False)


# what an instance sees

REPORT = """
import json
base = os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")
seen = {
    "base": base,
    "all": sorted(os.listdir(base)),
    "model": sorted(os.listdir(base + "/model")) if os.path.isdir(base + "/model") else None,
    "environment": dict(os.environ),
    "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
    "directory": os.getcwd(),
    "session": os.getsid(0) == os.getpid(),
}
with open(os.environ["REPORT"], "w") as file:
    file.write(json.dumps(seen) + chr(10))
"""


@needs_namespaces
@on_loop
async def test_an_instance_has_its_own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    program, model = write_serve(tmp_path), tmp_path / "model"
    model.mkdir()
    (model / "config.pbtxt").write_text("")
    before = entries("/opt")
    async with substrate_in(tmp_path / "host") as (substrate, _):
        variables = {"REPORT": str(tmp_path / "report"), "HOME": "/own", "SAGEMAKER_BIND_TO_PORT": "1"}
        request = request_for(program, REPORT, model=model, environment=variables)
        running = await substrate.launch(request)
        await answers(running)
        seen = json.loads(await text_of(tmp_path / "report"))
        assert seen["base"] == "/opt/ml"
        assert seen["all"] == ["model"]
        assert seen["model"] == ["config.pbtxt"]
        assert seen["shm"] == SMALL.memory_bytes // 2
        assert seen["session"]
        assert seen["environment"]["SAGEMAKER_BIND_TO_PORT"] == str(running.port)
        assert seen["environment"]["HOME"] == "/own"
        assert seen["environment"]["CUDA_VISIBLE_DEVICES"] == ""
        assert "SAGEMAKER_MULTI_MODEL" not in seen["environment"]
        assert "AWS_SECRET_ACCESS_KEY" not in seen["environment"]
    assert entries("/opt") == before


@needs_namespaces
@on_loop
async def test_a_multi_model_instance_sees_what_the_host_puts_there(tmp_path: Path) -> None:
    program = write_serve(tmp_path)
    script = """
while not os.path.exists("/opt/ml/models/a/file"):
    time.sleep(0.005)
print("found", flush=True)
"""
    async with substrate_in(tmp_path / "host") as (substrate, _):
        request = request_for(program, script, multi_model=True)
        running = await substrate.launch(request)
        assert running.seen_models == "/opt/ml/models"
        (running.models / "a").mkdir()
        (running.models / "a" / "file").touch()
        assert await text_of(substrate.log(request)) == "found"


@pytest.mark.usefixtures("shared")
@on_loop
async def test_an_instance_has_a_base_directory_where_namespaces_are_not_allowed(tmp_path: Path) -> None:
    program, model = write_serve(tmp_path), tmp_path / "model"
    model.mkdir()
    (model / "config.pbtxt").write_text("")
    async with substrate_in(tmp_path / "host") as (substrate, _):
        variables = {"REPORT": str(tmp_path / "report")}
        request = request_for(program, REPORT, model=model, multi_model=True, environment=variables)
        running = await substrate.launch(request)
        await answers(running)
        seen = json.loads(await text_of(tmp_path / "report"))
        assert seen["base"] == str(tmp_path / "host" / "instances" / "i-0")
        assert seen["model"] == ["config.pbtxt"]
        assert seen["environment"]["SAGEMAKER_MULTI_MODEL"] == "true"
        assert running.seen_models == str(running.models) == seen["base"] + "/models"
    assert (model / "config.pbtxt").exists()


# how it ends


@on_loop
async def test_an_instance_that_ends_tells_its_status_and_its_last_lines(tmp_path: Path) -> None:
    program = write_serve(tmp_path)
    async with substrate_in(tmp_path / "host") as (substrate, exits):
        script = "print('one'); print('the model is broken', file=sys.stderr); sys.exit(7)"
        await substrate.launch(request_for(program, script))
        reason = await exits.of("i-0")
        assert reason.startswith("it ended with status 7; its last lines: ")
        assert "the model is broken" in reason
        await substrate.launch(request_for(program, "os.kill(os.getpid(), signal.SIGSEGV)", number=1))
        assert await exits.of("i-1") == "it was killed by signal SIGSEGV"
        await substrate.launch(request_for(program, "os.kill(os.getpid(), signal.SIGKILL)", number=2))
        assert (
            await exits.of("i-2")
            == "it was killed by signal SIGKILL, as the kernel does when memory runs out"
        )
        await substrate.terminate("i-0")
        await wait_until_async(lambda: substrate.free().cpus == MACHINE.cpus * 8)
    assert not zombies()


@on_loop
async def test_only_the_last_lines_are_told(tmp_path: Path) -> None:
    program = write_serve(tmp_path)
    async with substrate_in(tmp_path / "host") as (substrate, exits):
        script = "print('x' * 100_000); [print(n) for n in range(20)]; sys.exit(1)"
        await substrate.launch(request_for(program, script))
        assert await exits.of("i-0") == "it ended with status 1; its last lines: 14 / 15 / 16 / 17 / 18 / 19"
        # and its log stays
        assert len(substrate.log(request_for(program)).read_text()) > 100_000


@on_loop
async def test_an_instance_that_does_not_answer_tells_what_it_has_printed(tmp_path: Path) -> None:
    program = write_serve(tmp_path)
    async with substrate_in(tmp_path / "host") as (substrate, _):
        await substrate.launch(request_for(program, "print('no database', flush=True); time.sleep(1000)"))
        async with asyncio.timeout(60):
            while not (told := await substrate.failure("i-0")):
                pass  # each look at the file gives way
        assert told == "; its last lines: no database"
        await substrate.terminate("i-0", 0.01)
        assert await substrate.failure("i-0") == ""


@on_loop
async def test_an_instance_is_asked_to_end_and_nobody_is_told(tmp_path: Path) -> None:
    program = write_serve(tmp_path)
    script = """
def end(*_):
    print("asked", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
"""
    async with substrate_in(tmp_path / "host") as (substrate, exits):
        request = request_for(program, script)
        await answers(await substrate.launch(request))
        await substrate.terminate("i-0")
        assert substrate.log(request).read_text() == "asked\n"
        assert not exits
        assert substrate.instances() == []
        assert not (tmp_path / "host" / "instances" / "i-0").exists()
        await substrate.terminate("i-0")
        await substrate.terminate("i-unknown")


@on_loop
async def test_an_instance_that_does_not_end_is_killed_when_its_grace_is_over(tmp_path: Path) -> None:
    program = write_serve(tmp_path)
    async with substrate_in(tmp_path / "host") as (substrate, exits):
        running = await substrate.launch(
            request_for(program, "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
        )
        await answers(running)
        began = asyncio.get_running_loop().time()
        await substrate.terminate("i-0", grace_s=0.3)
        assert 0.3 <= asyncio.get_running_loop().time() - began < 30  # the usual grace
        assert not lives(running.pid)
        assert not exits


FAMILY = """
def child(*further):
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(99)"
    return subprocess.Popen([sys.executable, "-SE", "-c", code], **dict(further)).pid
pids = [child(), child(("start_new_session", True))]
reading, writing = os.pipe()
if os.fork() == 0:  # its child will have no parent
    os.setsid()
    os.write(writing, str(child(("start_new_session", True))).encode())
    os._exit(0)
pids.append(int(os.read(reading, 99)))
os.wait()
with open(os.environ["REPORT"], "w") as file:
    file.write(" ".join(map(str, pids)) + chr(10))
"""


async def _family(substrate: local.LocalSubstrate, tmp_path: Path) -> tuple[int, list[int]]:
    """An instance with a child, one in a session of its own, and a grandchild without a parent."""
    report = tmp_path / "report"
    request = request_for(write_serve(tmp_path), FAMILY, environment={"REPORT": str(report)})
    running = await substrate.launch(request)
    await answers(running)
    pids = [int(pid) for pid in (await text_of(report)).split()]
    assert all(lives(pid) for pid in pids)
    return running.pid, pids


@on_loop
async def test_all_that_came_from_an_instance_ends_with_it(tmp_path: Path) -> None:
    async with substrate_in(tmp_path / "host") as (substrate, _):
        _, pids = await _family(substrate, tmp_path)
        await substrate.terminate("i-0")
        assert not [pid for pid in pids if lives(pid)]


@on_loop
async def test_what_a_killed_instance_leaves_is_ended(tmp_path: Path) -> None:
    async with substrate_in(tmp_path / "host") as (substrate, exits):
        pid, pids = await _family(substrate, tmp_path)
        os.kill(pid, signal.SIGKILL)
        assert "SIGKILL" in await exits.of("i-0")
        await wait_until_async(lambda: not substrate.instances())
        assert not [pid for pid in pids if lives(pid)]
        assert not (tmp_path / "host" / "instances" / "i-0").exists()


@on_loop
async def test_other_processes_are_let_alone(tmp_path: Path) -> None:
    program = write_serve(tmp_path)
    async with substrate_in(tmp_path / "a") as (first, _), substrate_in(tmp_path / "b") as (second, exits):
        running = await second.launch(request_for(program))
        await first.launch(request_for(program))
        await first.terminate("i-0")
        await answers(running)
        assert not exits


# room


@on_loop
async def test_processors_are_given_out_several_times_but_not_endlessly(tmp_path: Path) -> None:
    program = write_serve(tmp_path)
    async with substrate_in(tmp_path / "host", oversubscription=1.0) as (substrate, _):
        large = Resources(3, 1 << 26)
        await substrate.launch(request_for(program, resources=large))
        with pytest.raises(
            ApiError, match=r"another instance of 3 processors: 1 instances have 3 of the 4"
        ) as raised:
            await substrate.launch(request_for(program, number=1, resources=large))
        assert raised.value.code == "ResourceLimitExceeded"
        await substrate.launch(request_for(program, number=2))
        assert (substrate.largest().cpus, substrate.free().cpus) == (4, 0)
        await substrate.terminate("i-0")
        await substrate.launch(request_for(program, number=3, resources=large))


@on_loop
async def test_a_gpu_has_one_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5")
    program = write_serve(tmp_path)
    script = "print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True)"
    async with substrate_in(tmp_path / "host") as (substrate, _):
        requests = [
            request_for(program, script, number=each, resources=Resources(1, 1 << 26, 1)) for each in range(3)
        ]
        outcomes = await asyncio.gather(*map(substrate.launch, requests), return_exceptions=True)
        (refused,) = [each for each in outcomes if isinstance(each, ApiError)]
        assert refused.message.startswith(
            "no room for another instance of 1 GPUs: 0 of the 2 of this machine are free. Delete endpoints, lower"
        )
        assert {await text_of(substrate.log(request)) for request in requests[:2]} == {"3", "GPU-5"}
        assert substrate.free().gpus == 0
        await substrate.terminate("i-0")
        assert substrate.free().gpus == 1


@on_loop
async def test_instances_have_ports_of_their_own(tmp_path: Path) -> None:
    program = write_serve(tmp_path)
    async with substrate_in(tmp_path / "host") as (substrate, _):
        running = await asyncio.gather(
            *(substrate.launch(request_for(program, number=each)) for each in range(6))
        )
        assert len({each.port for each in running}) == 6
        for each in running:
            await answers(each)


_IN_TMP = """
import glob, os, tempfile
mine = os.path.join(tempfile.gettempdir(), "halimede-test-" + os.environ["SCRATCH"])
assert not os.path.exists(mine)
open(mine, "w").close()
print(glob.glob(mine[:-1] + "*"), os.path.dirname(mine), flush=True)
"""


@pytest.mark.parametrize("isolated", [pytest.param(True, marks=needs_namespaces), False])
@on_loop
async def test_an_instance_has_a_directory_of_its_own_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolated: bool
) -> None:
    monkeypatch.setattr(local, "can_isolate", lambda: isolated)
    program, scratch = write_serve(tmp_path), f"{os.getpid()}-{tmp_path.name}-x"
    async with substrate_in(tmp_path / "host") as (substrate, _):
        requests = [
            request_for(program, _IN_TMP, number=number, environment={"SCRATCH": scratch})
            for number in range(2)
        ]
        for request in requests:
            await substrate.launch(request)
            there = "/tmp" if isolated else str(tmp_path / "host" / "instances" / request.id / "tmp")
            mine = f"{there}/halimede-test-{scratch}"
            assert (await text_of(substrate.log(request))).strip() == f"{[mine]} {there}"
        assert not [name for name in entries("/tmp") if name.startswith(f"halimede-test-{scratch}")]
        await substrate.terminate("i-0")
        await wait_until_async(lambda: not (tmp_path / "host" / "instances" / "i-0").exists())


@needs_namespaces
@on_loop
async def test_what_the_program_is_made_of_stays_in_tmp(tmp_path: Path) -> None:
    """As tests and users have it whose programs or environments are there."""
    elsewhere = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        (elsewhere / "package.py").write_text("WORD = 'found'")
        program = write_serve(elsewhere)
        script = f"sys.path.append({str(elsewhere)!r}); import package; print(package.WORD, flush=True)"
        async with substrate_in(tmp_path / "host") as (substrate, _):
            request = request_for(program, script)
            await substrate.launch(request)
            assert await text_of(substrate.log(request)) == "found"
    finally:
        shutil.rmtree(elsewhere)


# what cannot be started


@pytest.mark.parametrize("isolated", [pytest.param(True, marks=needs_namespaces), False])
@on_loop
async def test_a_program_that_cannot_be_started_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolated: bool
) -> None:
    monkeypatch.setattr(local, "can_isolate", lambda: isolated)
    program = tmp_path / "no-interpreter"
    program.write_text("#!/nowhere/python\n")
    program.chmod(0o755)
    async with substrate_in(tmp_path / "host") as (substrate, exits):
        if isolated:
            await substrate.launch(request_for(program))
            assert f"cannot start '{program}': No such file" in await exits.of("i-0")
        else:
            with pytest.raises(ApiError, match=r"cannot start .* No such file") as raised:
                await substrate.launch(request_for(program))
            assert raised.value.code == "ValidationException"


@on_loop
async def test_what_cannot_be_started_takes_no_room(tmp_path: Path) -> None:
    program = write_serve(tmp_path)
    async with substrate_in(tmp_path / "host") as (substrate, _):
        with pytest.raises(ApiError, match=r"cannot start .* null byte"):
            await substrate.launch(request_for(program, environment={"A": "b\0c"}))
        with pytest.raises(ApiError, match="no rule says what runs for the image 'busybox'"):
            await substrate.launch(request_for("busybox"))
        (tmp_path / "host" / "logs" / "000000000000" / "us-east-1" / "e" / "A" / "i-0.log").rename(
            tmp_path / "old.log"
        )
        (tmp_path / "host" / "logs" / "000000000000" / "us-east-1" / "e" / "A" / "i-0.log").mkdir()
        with pytest.raises(ApiError, match="cannot make the directory of an instance") as raised:
            await substrate.launch(request_for(program))
        assert raised.value.status == 500
        assert substrate.free().cpus == MACHINE.cpus * 8
        assert not list((tmp_path / "host" / "instances").iterdir())


# another process of the host


@on_loop
async def test_the_next_substrate_takes_over_what_runs(tmp_path: Path) -> None:
    program, directory = write_serve(tmp_path), tmp_path / "host"
    gpu = Resources(1, 1 << 26, 1)
    async with substrate_in(directory, leave=True) as (substrate, _):
        before = [
            await substrate.launch(request_for(program, number=0, resources=gpu, model=tmp_path)),
            await substrate.launch(request_for(program, number=1, multi_model=True)),
        ]
        for each in before:
            await answers(each)
    async with substrate_in(directory) as (substrate, exits):
        assert sorted(substrate.instances(), key=lambda each: each.request.id) == before
        assert (substrate.free().cpus, substrate.free().gpus) == (4 * 8 - 2, 1)
        for each in before:
            await answers(each)
        os.kill(before[0].pid, signal.SIGKILL)
        assert await exits.of("i-0") == "it ended"
        await substrate.terminate("i-1")
        assert not lives(before[1].pid)
    for each in before:
        wait_for(each.pid)


@on_loop
async def test_what_ended_meanwhile_is_removed_with_all_that_came_from_it(tmp_path: Path) -> None:
    directory = tmp_path / "host"
    async with substrate_in(directory, leave=True) as (substrate, _):
        pid, pids = await _family(substrate, tmp_path)
    os.kill(pid, signal.SIGKILL)
    wait_for(pid)
    async with substrate_in(directory) as (substrate, _):
        assert substrate.instances() == []
        assert not [pid for pid in pids if lives(pid)]
        assert not list((directory / "instances").iterdir())


@on_loop
async def test_a_number_that_is_another_process_now_is_let_alone(tmp_path: Path) -> None:
    directory = tmp_path / "host"
    async with substrate_in(directory, leave=True) as (substrate, _):
        running = await substrate.launch(request_for(write_serve(tmp_path)))
        await answers(running)
    stranger = await asyncio.create_subprocess_exec(
        sys.executable, "-SE", "-c", "import time; time.sleep(99)"
    )
    path = directory / "instances" / "i-0" / "instance.json"
    state = json.loads(path.read_text())
    state["running"]["pid"] = stranger.pid
    path.write_text(json.dumps(state))
    async with substrate_in(directory) as (substrate, _):
        assert substrate.instances() == []
        assert not lives(running.pid)
    assert stranger.returncode is None
    assert lives(stranger.pid)
    stranger.kill()
    await stranger.wait()
    wait_for(running.pid)


@on_loop
async def test_an_instance_that_was_told_to_end_is_not_taken_over(tmp_path: Path) -> None:
    program, directory = write_serve(tmp_path), tmp_path / "host"
    ignores = "signal.signal(signal.SIGTERM, lambda *_: open(os.environ['ASKED'], 'w').write('asked\\n'))"
    async with substrate_in(directory, leave=True) as (substrate, _):
        variables = {"ASKED": str(tmp_path / "asked")}
        told = await substrate.launch(request_for(program, ignores, environment=variables))
        healthy = await substrate.launch(request_for(program, number=1))
        for each in (told, healthy):
            await answers(each)
        ending = asyncio.create_task(substrate.terminate("i-0", 1000.0))
        assert await text_of(tmp_path / "asked") == "asked"
        ending.cancel()  # the host is killed
        await asyncio.wait([ending])
        assert lives(told.pid)
    async with substrate_in(directory) as (substrate, exits):
        assert substrate.instances() == [healthy]
        assert not lives(told.pid)
        assert not exits
    for each in (told, healthy):
        wait_for(each.pid)


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "{}", '{"running": {}}', '{"running": {"request": 3}, "began": 1}']
)
@on_loop
async def test_an_instance_whose_file_is_stale_or_missing_is_ended(tmp_path: Path, text: str | None) -> None:
    directory = tmp_path / "host"
    async with substrate_in(directory, leave=True) as (substrate, _):
        running = await substrate.launch(request_for(write_serve(tmp_path)))
        await answers(running)
    path = directory / "instances" / "i-0" / "instance.json"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    async with substrate_in(directory) as (substrate, _):
        assert substrate.instances() == []
        assert not lives(running.pid)
        assert not path.parent.exists()
        wait_for(running.pid)


# many


@on_loop
async def test_fifty_launches_leave_nothing(tmp_path: Path) -> None:
    program, directory = write_serve(tmp_path), tmp_path / "host"
    async with substrate_in(directory) as (substrate, exits):

        async def once(number: int) -> None:
            script = "sys.exit(1)" if number % 5 == 0 else ""
            await substrate.launch(request_for(program, script, number=number))
            if number % 5 == 0:
                await exits.of(f"i-{number}")
            await substrate.terminate(f"i-{number}", grace_s=0.0 if number % 3 == 0 else 5.0)

        await asyncio.gather(*map(once, range(6)))
        before = open_files()
        for begin in range(6, 51, 5):
            await asyncio.gather(*map(once, range(begin, begin + 5)))
        await wait_until_async(lambda: not open_files() - before)
        assert not marked(directory)
        assert not list((directory / "instances").iterdir())
        assert not zombies()
        assert len(exits) == 11


@on_loop
async def test_processes_are_marked_with_their_instance(tmp_path: Path) -> None:
    async with substrate_in(tmp_path / "host") as (substrate, _):
        running = await substrate.launch(request_for(write_serve(tmp_path)))
        await answers(running)
        assert marked(tmp_path / "host") == {running.pid: tmp_path / "host" / "instances" / "i-0"}
