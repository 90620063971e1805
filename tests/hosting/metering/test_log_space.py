"""Logs that grow beyond what they may take: the oldest lines go, and all others stay where they are."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.metering import log_space
from halimede.hosting.metering.log_lines import end_of_lines, lines, lines_before
from halimede.hosting.metering.log_space import LogSettings, bound, first_position, remove_oldest
from halimede.hosting.metering.log_times import times_file
from tests.hosting.metering.serving import NOON, SCOPE, Metered, instance, metered
from tests.support.waiting import wait_until

MIB = 1 << 20
LIMIT = 4 * MIB
SMALL = LogSettings(LIMIT, 3 * LIMIT)
GROUP = "/aws/sagemaker/Endpoints/e"

CHATTY = """
import sys
for number in range({lines}):
    print(f"line {{number:09}}", "x" * (number * 37 % 300), flush=number % 1000 == 0)
sys.stdin.readline()
print("the end", flush=True)
"""


@pytest.fixture(params=["holes", "no holes"])
def holes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """File systems that can punch holes, and others."""
    if request.param == "no holes":
        monkeypatch.setattr(log_space, "punch", lambda *_: False)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = SCOPE.directory(tmp_path / "logs") / "e" / "v" / "i-1.log"
    path.parent.mkdir(parents=True)
    return path


def taken(log: Path) -> int:
    return log.stat().st_blocks * 512


def number_of(line: str) -> int:
    return int(line.split()[1])


class Chatty:
    """A process that writes its standard output to a log, as instances do, until it is told to end."""

    def __init__(self, log: Path, count: int) -> None:
        with log.open("ab") as output:
            command = [sys.executable, "-c", CHATTY.format(lines=count)]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, text=True)

    def end(self) -> None:
        self.process.communicate("\n", timeout=60)
        assert self.process.returncode == 0


def test_a_chatty_process_takes_no_more_disk_than_it_may_and_its_last_lines_are_all_there(log: Path) -> None:
    chatty = Chatty(log, 300_000)
    most = 0

    def bounded() -> bool:
        nonlocal most
        assert chatty.process.poll() is None
        bound([log], LIMIT)
        most = max(most, taken(log))
        return log.stat().st_size >= 40 * MIB

    wait_until(bounded, "the log to grow")
    chatty.end()
    bound([log], LIMIT)
    assert log.stat().st_size > 40 * MIB
    assert most < 3 * LIMIT
    assert taken(log) <= LIMIT + 4096
    every = [event.text for event in lines(log)]
    assert every[-1] == "the end"
    numbers = [number_of(line) for line in every[:-1]]
    assert numbers == list(range(300_000 - len(numbers), 300_000))
    assert len(numbers) > 5_000
    assert [event.text for event in lines_before(log, log.stat().st_size)] == every[::-1]


@pytest.mark.usefixtures("holes")
def test_lines_stay_where_they_are(log: Path) -> None:
    with log.open("ab") as file:
        for number in range(60_000):
            file.write(f"line {number} {'x' * 100}\n".encode())
    before = {event.position: event.text for event in lines(log)}
    bound([log], LIMIT)
    after = {event.position: event.text for event in lines(log)}
    assert 0 < len(after) < len(before)
    assert after.items() <= before.items()
    assert next(iter(after)) == first_position(log)
    assert max(after) == max(before)
    assert taken(log) <= LIMIT
    assert log.stat().st_size == max(before) + len(before[max(before)]) + 1


@pytest.mark.usefixtures("holes")
def test_a_writer_that_appends_goes_on_where_it_was(log: Path) -> None:
    with log.open("ab", buffering=0) as writer:
        for number in range(20):
            writer.write((f"line {number} " + "x" * 500_000 + "\n").encode())
            bound([log], LIMIT)
            assert taken(log) <= LIMIT + 4096
        writer.write(b"last\n")
    assert [event.text for event in lines(log)][-1] == "last"
    assert log.stat().st_size == sum(500_000 + len(f"line {number} \n") for number in range(20)) + 5


@pytest.mark.parametrize(
    "data", [b"", b"a\n", b"\n" * 5000, b"\0\0a\n", b"a\n" + bytes(1 << 20) + b"b\n" * 4096]
)
def test_the_first_line_of_a_log_that_is_whole(log: Path, data: bytes) -> None:
    log.write_bytes(data)
    assert first_position(log) == len(data) - len(data.lstrip(b"\0"))


def test_the_first_line_is_found_while_the_log_grows(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log.write_bytes(b"one\n")
    read = os.pread

    def growing(descriptor: int, count: int, position: int) -> bytes:
        with log.open("ab") as file:
            file.write(b"more\n")
        return read(descriptor, count, position)

    monkeypatch.setattr(os, "pread", growing)
    assert first_position(log) == 0
    assert [event.text for event in lines_before(log, end_of_lines(log))][-1] == "one"


def test_a_log_within_its_limit_stays_as_it_is(log: Path) -> None:
    log.write_bytes(b"line\n" * 1000)
    bound([log, log.with_name("none.log")], LIMIT)
    assert first_position(log) == 0
    assert not times_file(log).exists()


def test_one_endless_line_is_bounded_too(log: Path) -> None:
    log.write_bytes(b"x" * (3 * LIMIT))
    bound([log], LIMIT)
    assert taken(log) <= LIMIT
    assert "".join(event.text for event in lines(log)) == "x" * (LIMIT - LIMIT // 4)


def test_lines_that_go_while_they_are_read_are_passed_over(log: Path) -> None:
    log.write_bytes(b"".join(f"line {number} {'x' * 200}\n".encode() for number in range(50_000)))
    reading = lines(log)
    seen = [number_of(next(reading).text) for _ in range(3)]
    bound([log], LIMIT)
    rest = [event.text for event in reading]
    assert not [line for line in rest if "\0" in line]
    assert seen == [0, 1, 2]
    numbers = [number_of(line) for line in rest]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 49_999


# as it is seen by whoever asks


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Metered]:
    with metered(tmp_path, logs=SMALL) as running:
        running.instances.append(instance("i-1", 0, tmp_path))
        yield running


@pytest.fixture
def client(host: Metered) -> Iterator[Any]:
    asking = host.client("logs")
    yield asking
    asking.close()


def write(log: Path, begin: int, end: int) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        for number in range(begin, end):
            file.write(f"line {number} {'x' * 1000}\n".encode())
    os.utime(log, (time.time() - 100, time.time() - 100))


def get(client: Any, **further: Any) -> Any:
    return client.get_log_events(logGroupName=GROUP, logStreamName="v/i-1", **further)


def numbers(answer: Any) -> list[int]:
    return [number_of(event["message"]) for event in answer["events"]]


def test_tokens_go_on_when_lines_are_gone(host: Metered, client: Any, log: Path) -> None:
    write(log, 0, 2000)
    host.tick(NOON + 1)
    first = get(client, startFromHead=True, limit=10)
    assert numbers(first) == list(range(10))
    latest = get(client, limit=5)
    assert numbers(latest) == list(range(1995, 2000))
    write(log, 2000, 10_000)
    host.tick(NOON + 2)
    # whoever was at the end goes on with the oldest line that is there, and misses none after it
    assert taken(log) <= LIMIT
    forward = get(client, nextToken=latest["nextForwardToken"])
    oldest = numbers(forward)[0]
    assert oldest > 2000
    assert numbers(get(client, startFromHead=True, limit=1)) == [oldest]
    assert numbers(get(client, nextToken=first["nextForwardToken"], limit=1)) == [oldest]
    seen: list[int] = []
    while forward["events"]:
        seen += numbers(forward)
        forward = get(client, nextToken=forward["nextForwardToken"])
    assert seen == list(range(oldest, 10_000))
    # back from there to the oldest one; from what is gone there is nothing before
    assert get(client, nextToken=latest["nextBackwardToken"])["events"] == []
    backward = get(client)
    seen = []
    while backward["events"]:
        seen = numbers(backward) + seen
        backward = get(client, nextToken=backward["nextBackwardToken"])
    assert seen == list(range(oldest, 10_000))
    write(log, 10_000, 10_001)
    assert numbers(get(client, nextToken=forward["nextForwardToken"])) == [10_000]


def test_times_and_sizes_are_those_of_the_lines_that_are_there(host: Metered, client: Any, log: Path) -> None:
    for second in range(20):
        write(log, second * 1000, second * 1000 + 1000)
        host.tick(NOON + second)
    got = get(client, startFromHead=True)["events"]
    for event in got:
        assert event["timestamp"] == int(NOON + number_of(event["message"]) // 1000) * 1000
    (stream,) = client.describe_log_streams(logGroupName=GROUP)["logStreams"]
    assert LIMIT // 2 < stream["storedBytes"] <= LIMIT
    assert stream["firstEventTimestamp"] == got[0]["timestamp"]
    assert stream["lastEventTimestamp"] == int(NOON + 19) * 1000
    assert times_file(log).stat().st_size <= 6 * 16


def test_found_lines_go_on_when_lines_are_gone(host: Metered, client: Any, log: Path) -> None:
    write(log, 0, 2000)
    host.tick(NOON + 1)
    page = client.filter_log_events(logGroupName=GROUP, filterPattern="line", limit=10)
    assert numbers(page) == list(range(10))
    write(log, 2000, 10_000)
    host.tick(NOON + 2)
    seen: list[int] = []
    while "nextToken" in page:
        page = client.filter_log_events(logGroupName=GROUP, filterPattern="line", nextToken=page["nextToken"])
        seen += numbers(page)
    assert seen == list(range(seen[0], 10_000))
    assert seen[0] > 2000


def test_a_restart_goes_on_with_the_same_tokens(tmp_path: Path, log: Path) -> None:
    tokens: dict[str, str] = {}
    for begin in (0, 8000, 16_000):
        with metered(tmp_path, NOON + begin, logs=SMALL) as host:
            host.instances.append(instance("i-1", 0, tmp_path))
            client = host.client("logs")
            write(log, begin, begin + 8000)
            if tokens:
                # what was written while no host ran is not shortened before it is seen
                assert numbers(get(client, **tokens, limit=3)) == [begin, begin + 1, begin + 2]
            host.tick(NOON + begin + 1)
            assert taken(log) <= LIMIT
            answer = get(client, limit=10)
            assert numbers(answer) == list(range(begin + 7990, begin + 8000))
            tokens = {"nextToken": answer["nextForwardToken"]}
            client.close()


# logs of instances that are gone


def test_logs_of_what_is_gone_stay_until_all_take_too_much_and_then_the_oldest_go(
    host: Metered, client: Any, log: Path
) -> None:
    for number in range(8):
        gone = log.parent.parent.parent / f"gone-{number}" / "v" / "i-9.log"
        gone.parent.mkdir(parents=True)
        write(gone, 0, 3000)
        os.utime(gone, (NOON - 1000 + number, NOON - 1000 + number))
        times_file(gone).touch()
    write(log, 0, 3000)
    os.utime(log, (NOON - 5000, NOON - 5000))  # it is quiet, and runs
    host.tick(NOON + 1)
    host.tick(NOON + 2)
    assert len(list(log.parent.parent.parent.glob("*/*/*.log"))) == 9
    host.tick(NOON + 61)
    groups = [group["logGroupName"].rpartition("/")[2] for group in client.describe_log_groups()["logGroups"]]
    assert groups == ["e", "gone-5", "gone-6", "gone-7"]
    assert len(list(log.parent.parent.parent.glob("*/*/*.times"))) == 4
    assert numbers(get(client, limit=1)) == [2999]


def test_directories_without_logs_go_when_the_host_starts(tmp_path: Path, log: Path) -> None:
    log.write_text("x\n")
    (SCOPE.directory(tmp_path / "logs") / "gone" / "v").mkdir(parents=True)
    with metered(tmp_path) as host:
        assert [each.name for each in host.logs.iterdir()] == ["e"]


def test_a_log_that_was_written_to_just_now_is_not_removed(log: Path) -> None:
    log.write_bytes(b"x" * MIB)
    remove_oldest(log.parents[4], 1000)
    assert log.exists()
    os.utime(log, (NOON, NOON))
    remove_oldest(log.parents[4], 1000)
    assert not log.exists()
