"""Several processes of a node, some of which are killed."""

import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.hosting.substrates.node.serving import CONFIG, MIB, ArchiveServer, Asked, Fault, Handler, archive
from tests.hosting.substrates.node.taking import Taking, TakingProcess


def select_said(processes: list[TakingProcess], count: int) -> list[TakingProcess]:
    """So many of these processes, which have said something."""
    said: list[TakingProcess] = []
    changed = threading.Condition()

    def listen(process: TakingProcess) -> None:
        process.wait_for("total")
        with changed:
            said.append(process)
            changed.notify()

    threads = [threading.Thread(target=listen, args=[process], daemon=True) for process in processes]
    for thread in threads:
        thread.start()
    with changed:
        assert changed.wait_for(lambda: len(said) >= count, 60)
        return list(said)


def broken_off(server: ArchiveServer, upto: int) -> Fault:
    """A server that sends so many bytes, and no more until its gate is open."""

    def serve(handler: Handler, asked: Asked) -> None:
        server.gate.clear()
        data = handler.server.archives[asked.path]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        with suppress(OSError):
            handler.wfile.write(data[:upto])
            server.gate.wait()
            handler.wfile.write(data[upto:])

    return serve


def test_ten_processes_share_one_fetch(server: ArchiveServer, node: Taking) -> None:
    data = archive(4 * MIB)
    offer = server.offer(data)
    server.gate.clear()
    with ExitStack() as running:
        processes = [node.process(offer) for _ in range(10)]
        for process in processes:
            running.callback(process.kill)
        # all but the one that fetches, which has nothing to tell yet, say how far it has come
        asking = select_said(processes, 9)
        server.gate.set()
        [directory] = {process.wait_for("directory")["directory"] for process in processes}
        assert (Path(str(directory)) / "simple/config.pbtxt").read_bytes() == CONFIG
        assert len(server.asked) == 1
        assert server.sent == len(data)
        assert len(asking) == 9
        assert len(node.names()) == 1


def test_ten_processes_fetch_once_what_is_no_archive(server: ArchiveServer, node: Taking) -> None:
    offer = server.offer(b"no archive" * 1000)
    server.gate.clear()
    with ExitStack() as running:
        processes = [node.process(offer) for _ in range(10)]
        for process in processes:
            running.callback(process.kill)
        select_said(processes, 9)
        server.gate.set()
        messages = {process.wait_for("code")["message"] for process in processes}
    assert len(messages) == 1
    assert len(server.asked) == 1


def test_waiting_processes_see_how_far_the_fetching_one_has_come(server: ArchiveServer, node: Taking) -> None:
    data = archive(MIB)
    offer = server.offer(data)
    server.faults = [broken_off(server, MIB // 2)]
    fetching = node.process(offer)
    waiting = None
    try:
        fetching.wait_for("done", 1)
        waiting = node.process(offer)
        waiting.wait_for("done", MIB // 2)
        server.gate.set()
        waiting.wait_for("directory")
    finally:
        fetching.kill()
        if waiting is not None:
            waiting.kill()


def test_a_killed_fetch_is_resumed_by_another_process(server: ArchiveServer, node: Taking) -> None:
    data = archive(2 * MIB)
    offer = server.offer(data)
    server.faults = [broken_off(server, MIB)]
    fetching = node.process(offer)
    fetching.wait_for("done", MIB)
    fetching.kill()
    server.gate.set()
    process = node.process(offer)
    try:
        process.wait_for("directory")
    finally:
        process.kill()
    assert [asked.range for asked in server.asked] == ["", f"bytes={MIB}-"]
    assert server.asked[1].sent == len(data) - MIB


def test_a_waiting_process_takes_over_when_the_fetching_one_is_killed(
    server: ArchiveServer, node: Taking
) -> None:
    offer = server.offer(archive(2 * MIB))
    server.faults = [broken_off(server, MIB)]
    fetching = node.process(offer)
    fetching.wait_for("done", MIB)
    waiting = node.process(offer)
    try:
        waiting.wait_for("done", MIB)
        fetching.kill()
        server.gate.set()
        waiting.wait_for("directory")
    finally:
        waiting.kill()
    assert [asked.range for asked in server.asked] == ["", f"bytes={MIB}-"]


def test_a_killed_process_holds_nothing(server: ArchiveServer, tmp_path: Path) -> None:
    node = Taking(tmp_path / "node", limit=3 * MIB)
    one, other = (server.offer(archive(MIB), name) for name in ("one", "other"))
    process = node.process(one)
    process.wait_for("directory")
    error = node.refusal(other)
    assert (error.code, error.status) == ("InsufficientStorage", 507)
    process.kill()
    node.take(other)
    assert len(node.names()) == 1


def test_what_a_process_killed_while_extracting_has_left_is_removed(
    server: ArchiveServer, node: Taking
) -> None:
    offer = server.offer(archive(64 * MIB))
    for _ in range(3):
        process = node.process(offer)
        process.wait_for("done", offer.size)
        process.kill()
    node.take(offer)
    node.store.tidy()
    assert [name.partition("-")[0] for name in node.names()] == ["model"]
    assert len(server.asked) == 1


def test_processes_killed_at_any_moment_leave_nothing_that_stays(server: ArchiveServer, node: Taking) -> None:
    offers = [server.offer(archive(200_000), f"m{index}") for index in range(3)]
    for index in range(12):
        process = node.process(offers[index % 3])
        process.wait_for("done")
        threading.Event().wait(0.01 * index)
        process.kill()
    for offer in offers:
        held = node.take(offer)
        assert (held.directory / "simple/1/weights").stat().st_size == 200_000
    assert [name.partition("-")[0] for name in node.names()] == ["model"] * 3


def test_an_archive_left_beside_its_model_is_removed(server: ArchiveServer, node: Taking) -> None:
    offer = server.offer(archive(1000))
    directory = node.take(offer).directory.parent
    left = directory.with_name(directory.name.replace("model-", "fetch-"))
    left.mkdir()
    (left / "archive").write_bytes(bytes(MIB))
    assert node.take(offer).directory.parent == directory
    node.store.tidy()
    assert node.names() == [directory.name]


def test_unknown_files_are_left_alone(server: ArchiveServer, tmp_path: Path) -> None:
    known = {"model-" + "0" * 32, "fetch-" + "1" * 32, "trash-" + "2" * 32}
    unknown = {"models", "fetch-me", "trash-" + "g" * 32, "model-" + "0" * 33}
    later = [0.0]
    node = Taking(tmp_path / "node", limit=3 * MIB, now=lambda: later[0])
    for name in known | unknown:
        (node.directory / name).mkdir()
        (node.directory / name / "file").write_bytes(bytes(MIB))
    later[0] = time.time() + 3700
    node.store.tidy()
    assert set(node.names()) == unknown | {"model-" + "0" * 32}  # a model is there until its room is needed
    node.take(server.offer(archive(MIB)))
    assert len(node.names()) == len(unknown) + 1


def test_a_download_that_nobody_resumes_is_removed_after_an_hour(
    server: ArchiveServer, tmp_path: Path
) -> None:
    later = [time.time()]
    node = Taking(tmp_path / "node", now=lambda: later[0])
    server.faults = [lambda handler, asked: handler.serve(asked, upto=1000)] * 9
    node.refusal(server.offer(archive(MIB)), 0.3)
    node.store.tidy()
    assert node.store.used_bytes() > 0
    later[0] += 3700
    node.store.tidy()
    assert node.store.used_bytes() == 0
    assert node.names() == []
