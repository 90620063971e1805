"""CloudWatch Logs over files, asked by boto3."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.identity import EndpointId
from halimede.hosting.metering.log_times import LogTimes
from halimede.hosting.substrates.base import containers_file
from tests.hosting.metering.serving import NOON, SCOPE, Metered, instance, metered
from tests.support.waiting import wait_until

GROUP = "/aws/sagemaker/Endpoints/e"
STREAM = "v/i-1"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Metered]:
    with metered(tmp_path) as running:
        running.instances.append(instance("i-1", 0, tmp_path))
        yield running


@pytest.fixture
def client(host: Metered) -> Any:
    return host.client("logs")


def log(host: Metered, name: str = "e/v/i-1") -> Path:
    path = host.logs / f"{name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write(host: Metered, text: str | bytes, name: str = "e/v/i-1", quiet: bool = True) -> None:
    """Let an instance print something; afterwards it has been quiet for a while."""
    data = text if isinstance(text, bytes) else text.encode()
    with log(host, name).open("ab") as file:
        file.write(data)
    if quiet:
        os.utime(log(host, name), (time.time() - 60, time.time() - 60))


def events(client: Any, **further: Any) -> Any:
    return client.get_log_events(logGroupName=GROUP, logStreamName=STREAM, **further)


def messages(answer: Any) -> list[str]:
    return [event["message"] for event in answer["events"]]


def refused(call: Any, **arguments: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as error:
        call(**arguments)
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    return error.value.response["Error"]["Code"], error.value.response["Error"]["Message"]


def test_groups_are_endpoints(host: Metered, client: Any) -> None:
    assert client.describe_log_groups()["logGroups"] == []
    for name in ("b", "a", "ab"):
        write(host, "x\n", f"{name}/v/i-1")
    groups = client.describe_log_groups()["logGroups"]
    assert [group["logGroupName"].rpartition("/")[2] for group in groups] == ["a", "ab", "b"]
    assert groups[0]["arn"] == "arn:aws:logs:eu-west-1:000000000000:log-group:/aws/sagemaker/Endpoints/a"
    assert len(client.describe_log_groups(logGroupNamePrefix="/aws/sagemaker/Endpoints/a")["logGroups"]) == 2
    assert len(client.describe_log_groups(logGroupNamePattern="ab")["logGroups"]) == 1


def test_groups_are_as_old_as_their_first_line_and_as_large_as_their_streams(
    host: Metered, client: Any
) -> None:
    for second, name in enumerate(("e/w/i-3", "e/v/i-1", "f/v/i-2"), 1):
        write(host, "x" * second + "\n", name)
        LogTimes().note([log(host, name)], NOON + second)
    groups = client.describe_log_groups()["logGroups"]
    assert [(group["creationTime"], group["storedBytes"]) for group in groups] == [
        ((NOON + 1) * 1000, 5),
        ((NOON + 3) * 1000, 4),
    ]


def test_streams_are_instances(host: Metered, client: Any) -> None:
    for second, name in enumerate(("e/w/i-3", "e/v/i-1", "e/v/i-2")):
        write(host, "x" * second + "\n", name)
        LogTimes().note([log(host, name)], NOON + second)
    streams = client.describe_log_streams(logGroupName=GROUP)["logStreams"]
    assert [stream["logStreamName"] for stream in streams] == ["v/i-1", "v/i-2", "w/i-3"]
    assert streams[0] | {"storedBytes": 2, "lastEventTimestamp": (NOON + 1) * 1000} == streams[0]
    assert streams[0]["arn"].endswith(f":log-group:{GROUP}:log-stream:v/i-1")
    by_time = client.describe_log_streams(logGroupName=GROUP, orderBy="LastEventTime", descending=True)[
        "logStreams"
    ]
    assert [stream["logStreamName"] for stream in by_time] == ["v/i-2", "v/i-1", "w/i-3"]
    [stream] = client.describe_log_streams(
        logGroupIdentifier=f"arn:aws:logs:eu-west-1:000000000000:log-group:{GROUP}", logStreamNamePrefix="w/"
    )["logStreams"]
    assert stream["logStreamName"] == "w/i-3"
    for where, code in (
        ("eu-central-1:000000000000", "ResourceNotFoundException"),
        ("eu-west-1:123456789012", "AccessDeniedException"),
    ):
        with pytest.raises(ClientError) as error:
            client.describe_log_streams(logGroupIdentifier=f"arn:aws:logs:{where}:log-group:{GROUP}")
        assert error.value.response["Error"]["Code"] == code


def test_groups_and_streams_page_by_page(host: Metered, client: Any) -> None:
    for number in range(120):
        write(host, "", f"e/v/i-{number:03}")
        write(host, "", f"e{number:03}/v/i-1")
    pages = list(client.get_paginator("describe_log_streams").paginate(logGroupName=GROUP))
    assert [len(page["logStreams"]) for page in pages] == [50, 50, 20]
    groups = list(client.get_paginator("describe_log_groups").paginate(PaginationConfig={"PageSize": 49}))
    assert sum(len(page["logGroups"]) for page in groups) == 121
    for token in ("x", "-1", "9" * 5000, "1.0"):
        code, _ = refused(client.describe_log_groups, nextToken=token)
        assert code == "InvalidParameterException"


def test_the_last_lines_come_first(host: Metered, client: Any) -> None:
    write(host, "".join(f"line {number}\n" for number in range(10)))
    assert messages(events(client, limit=3)) == ["line 7", "line 8", "line 9"]
    assert messages(events(client)) == [f"line {number}" for number in range(10)]
    assert messages(events(client, limit=2, startFromHead=True)) == ["line 0", "line 1"]


def test_forward_until_the_token_repeats(host: Metered, client: Any) -> None:
    write(host, "".join(f"{number}\n" for number in range(25)))
    answer = events(client, startFromHead=True, limit=10)
    seen: list[str] = []
    while True:
        seen += messages(answer)
        following = events(client, nextToken=answer["nextForwardToken"], limit=10)
        if following["nextForwardToken"] == answer["nextForwardToken"]:
            break
        answer = following
    assert seen == [str(number) for number in range(25)]
    assert following["events"] == []
    write(host, "more\n")
    assert messages(events(client, nextToken=following["nextForwardToken"])) == ["more"]


def test_backward_until_the_token_repeats(host: Metered, client: Any) -> None:
    write(host, "".join(f"{number}\n" for number in range(25)))
    answer = events(client, limit=10)
    seen: list[str] = []
    while True:
        seen = messages(answer) + seen
        following = events(client, nextToken=answer["nextBackwardToken"], limit=10)
        if following["nextBackwardToken"] == answer["nextBackwardToken"]:
            break
        answer = following
    assert seen == [str(number) for number in range(25)]
    assert messages(events(client, nextToken=following["nextForwardToken"], limit=2)) == ["0", "1"]


def test_an_empty_log(host: Metered, client: Any) -> None:
    write(host, "")
    for answer in (events(client), events(client, startFromHead=True)):
        assert answer["events"] == []
        assert messages(events(client, nextToken=answer["nextForwardToken"])) == []
        assert messages(events(client, nextToken=answer["nextBackwardToken"])) == []
    write(host, "first\n")
    assert messages(events(client, nextToken=answer["nextForwardToken"])) == ["first"]


def test_a_large_log_both_ways(host: Metered, client: Any) -> None:
    """More than one answer may have, and more than is read at once."""
    lines = [f"{number} " + "x" * (number * 37 % 2000) for number in range(5000)]
    write(host, "\n".join(lines) + "\n")
    answer = events(client, startFromHead=True)
    seen: list[str] = []
    while answer["events"]:
        assert sum(len(message) for message in messages(answer)) <= 1 << 20
        seen += messages(answer)
        answer = events(client, nextToken=answer["nextForwardToken"])
    assert seen == lines
    seen = []
    answer = events(client)
    while answer["events"]:
        seen = messages(answer) + seen
        answer = events(client, nextToken=answer["nextBackwardToken"])
    assert seen == lines


def test_a_very_long_line_comes_in_parts(host: Metered, client: Any) -> None:
    write(host, "a\n" + "b" * 1_500_000 + "\nc\n")
    for further in ({"startFromHead": True}, {}):
        answer = events(client, **further)
        token, seen = ("nextForwardToken" if further else "nextBackwardToken"), list[str]()
        while answer["events"]:
            seen = seen + messages(answer) if further else messages(answer) + seen
            answer = events(client, nextToken=answer[token])
        assert "".join(seen) == "a" + "b" * 1_500_000 + "c"


def test_the_beginning_of_a_line_waits_for_its_end(host: Metered, client: Any) -> None:
    write(host, "whole\npar", quiet=False)
    answer = events(client, startFromHead=True)
    assert messages(answer) == ["whole"]
    assert messages(events(client)) == ["whole"]
    write(host, "tial\n", quiet=False)
    assert messages(events(client, nextToken=answer["nextForwardToken"])) == ["partial"]


PIECES = """
import os
number = 0
while True:
    os.write(1, b"line %d" % number)
    os.write(1, b" end\\n")
    number += 1
"""


def test_lines_written_in_pieces_are_never_seen_in_pieces(host: Metered, client: Any) -> None:
    with (
        log(host).open("ab") as output,
        subprocess.Popen([sys.executable, "-c", PIECES], stdout=output) as writer,
    ):
        try:
            while not (last := events(client, limit=3))["events"]:
                assert writer.poll() is None
            seen, token = [], last["nextForwardToken"]
            for _ in range(60):
                seen += messages(events(client, limit=3))
                following = events(client, nextToken=token, limit=20)
                seen += messages(following)
                token = following["nextForwardToken"]
        finally:
            writer.kill()
    assert len(seen) > 1000
    assert [line for line in seen if not re.fullmatch(r"line \d+ end", line)] == []


def test_last_words_without_a_line_end_are_not_lost(host: Metered, client: Any) -> None:
    write(host, "whole\nSegmentation fault")
    assert messages(events(client, startFromHead=True)) == ["whole", "Segmentation fault"]
    assert messages(events(client)) == ["whole", "Segmentation fault"]


def test_progress_bars_are_one_line(host: Metered, client: Any) -> None:
    write(host, "10%\r50%\r100%\r\nnext\r\n")
    assert messages(events(client, startFromHead=True)) == ["10%\r50%\r100%", "next"]


def test_bytes_that_are_no_text(host: Metered, client: Any) -> None:
    write(host, b"\xff\xfe\0 \x1b[31mred\n\n\n")
    assert messages(events(client)) == ["\ufffd\ufffd\0 \x1b[31mred", "", ""]


def test_lines_have_the_time_at_which_they_were_written(host: Metered, client: Any) -> None:
    for second in range(5):
        write(host, f"{second}\n")
        host.tick(NOON + second)
    got = events(client)["events"]
    assert [(event["message"], event["timestamp"]) for event in got] == [
        (str(second), int((NOON + second) * 1000)) for second in range(5)
    ]
    window = {"startTime": int(NOON + 1) * 1000, "endTime": int(NOON + 3) * 1000}
    for further in ({}, {"startFromHead": True}):
        assert messages(events(client, **window, **further)) == ["1", "2"]
    assert messages(events(client, startTime=int(NOON + 3) * 1000, startFromHead=True, limit=1)) == ["3"]
    assert messages(events(client, endTime=int(NOON + 2) * 1000, limit=1)) == ["1"]


def test_lines_that_nobody_has_noted_are_of_the_last_time_that_the_log_was_written(
    host: Metered, client: Any
) -> None:
    write(host, "a\nb\n")
    os.utime(log(host), (NOON, NOON))
    assert [event["timestamp"] for event in events(client)["events"]] == [NOON * 1000] * 2


def test_real_time_is_right_to_a_second(tmp_path: Path) -> None:
    with metered(tmp_path, clock=time.time) as host:
        host.instances.append(instance("i-1", 0, tmp_path))
        times = log(host, "e/v/i-1").with_name("i-1.log.times")
        spans = []
        for number in range(2):
            written = time.time() * 1000
            write(host, f"{number}\n")
            wait_until(lambda size=16 * (number + 1): times.exists() and times.stat().st_size >= size)  # type: ignore[misc]
            spans.append((written, time.time() * 1000))
        got = events(host.client("logs"))["events"]
        for event, (written, noted) in zip(got, spans, strict=True):
            assert written - 1_000 < event["timestamp"] <= noted


def test_what_is_told_of_fetches_has_times_too(host: Metered, client: Any) -> None:
    host.count(lambda: host.metering.meter(EndpointId(*SCOPE, "e"), "v"))
    for second in range(2):
        write(host, f"{second}\n", "e/v/data-log")
        host.tick(NOON + second)
    got = client.get_log_events(logGroupName=GROUP, logStreamName="v/data-log")["events"]
    assert [event["timestamp"] for event in got] == [int(NOON) * 1000, int(NOON + 1) * 1000]


def test_logs_of_instances_that_are_gone(host: Metered, client: Any) -> None:
    write(host, "one\n")
    host.tick(NOON + 1)
    write(host, "last words\n")
    host.instances.clear()
    host.tick(NOON + 2)
    write(host, "", "e/v/i-2")
    host.tick(NOON + 100)
    got = events(client)["events"]
    assert [event["timestamp"] for event in got] == [int(NOON + 1) * 1000, int(NOON + 2) * 1000]


def test_times_survive_a_restart(tmp_path: Path) -> None:
    for hour in range(3):
        with metered(tmp_path) as host:
            host.instances.append(instance("i-1", 0, tmp_path))
            write(host, f"{hour}\n")
            host.tick(NOON + 3600 * hour)
            host.tick(NOON + 3600 * hour + 1)
            last = events(host.client("logs"))["events"]
    assert [event["timestamp"] for event in last] == [int(NOON + 3600 * hour) * 1000 for hour in range(3)]
    assert (host.logs / "e/v/i-1.log.times").stat().st_size == 3 * 16


def test_a_list_of_times_that_was_cut_off_is_repaired(host: Metered, client: Any) -> None:
    write(host, "one\n")
    host.tick(NOON + 1)
    with (host.logs / "e/v/i-1.log.times").open("ab") as file:
        file.write(b"half")
    write(host, "two\n")
    host.tick(NOON + 2)
    assert [event["timestamp"] for event in events(client)["events"]] == [
        int(NOON + 1) * 1000,
        int(NOON + 2) * 1000,
    ]


@pytest.mark.parametrize(
    "group", ["..", "/aws/sagemaker/Endpoints/", "/aws/sagemaker/Endpoints/..", "/aws/sagemaker/Endpoints/../logs",
              "/aws/sagemaker/Endpoints/e/v", "/aws/sagemaker/Endpoints/none", "/other/e", "e",
              "/aws/sagemaker/Endpoints//etc", "/aws/sagemaker/Endpoints/" + "a" * 400],
)  # fmt: skip
def test_groups_that_there_are_not(host: Metered, client: Any, group: str) -> None:
    write(host, "secret\n")
    for call, further in (
        (client.get_log_events, {"logStreamName": STREAM}),
        (client.filter_log_events, {}),
        (client.describe_log_streams, {}),
    ):
        code, message = refused(call, logGroupName=group, **further)
        assert code == "ResourceNotFoundException"
        assert "The specified log group does not exist" in message


@pytest.mark.parametrize(
    "stream",
    ["v", "v/", "/i-1", "v/none", "../e/v/i-1", "v/../v/i-1", "./v/i-1", "v/i-1.log", "v//i-1", "/etc/passwd",
     "v/i-1\0", "a" * 500, "v/" + "ü" * 150],
)  # fmt: skip
def test_streams_that_there_are_not(host: Metered, client: Any, stream: str) -> None:
    write(host, "secret\n")
    (host.logs / "secret.log").write_text("secret\n")
    code, message = refused(client.get_log_events, logGroupName=GROUP, logStreamName=stream)
    assert code == "ResourceNotFoundException"
    assert "The specified log stream does not exist" in message
    assert refused(client.filter_log_events, logGroupName=GROUP, logStreamNames=[stream])[0] == code


def test_questions_that_make_no_sense(host: Metered, client: Any) -> None:
    write(host, "x\n")
    for token in ("", "x", "f/", "f/x", "f/-1", "g/1", "f/" + "9" * 5000, "f/1 "):
        code, _ = refused(events, client=client, nextToken=token)
        assert code == "InvalidParameterException"
    for arguments in (
        {"logStreamName": STREAM},
        {"logGroupName": "a b", "logStreamName": STREAM},
        {"limit": 0},
    ):
        code, _ = refused(client.get_log_events, **{"logStreamName": STREAM, **arguments})
        assert code == "InvalidParameterException"
    assert (
        refused(client.filter_log_events, logGroupName=GROUP, limit=10_001)[0] == "InvalidParameterException"
    )
    assert messages(events(client, nextToken="f/999999")) == []


def filtered(client: Any, **further: Any) -> list[tuple[str, str]]:
    answer = client.filter_log_events(logGroupName=GROUP, **further)
    return [(event["logStreamName"], event["message"]) for event in answer["events"]]


def test_lines_of_all_instances_in_the_order_of_their_times(host: Metered, client: Any) -> None:
    names = ("e/v/i-1", "e/v/i-2", "e/w/i-3")
    for second in range(4):
        name = names[second % 3]
        write(host, f"line {second}\n", name)
        LogTimes().note([log(host, each) for each in names], NOON + second)
    assert filtered(client) == [
        ("v/i-1", "line 0"), ("v/i-2", "line 1"), ("w/i-3", "line 2"), ("v/i-1", "line 3")
    ]  # fmt: skip
    assert filtered(client, logStreamNamePrefix="v/") == [
        ("v/i-1", "line 0"), ("v/i-2", "line 1"), ("v/i-1", "line 3")
    ]  # fmt: skip
    assert filtered(client, logStreamNames=["w/i-3"]) == [("w/i-3", "line 2")]
    window = {"startTime": int(NOON + 1) * 1000, "endTime": int(NOON + 2) * 1000}
    assert filtered(client, **window) == [("v/i-2", "line 1"), ("w/i-3", "line 2")]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("", ["ERROR out of memory", "error: disk", "INFO -x out"]),
        ("ERROR", ["ERROR out of memory"]),
        ("out of", ["ERROR out of memory"]),
        ("out", ["ERROR out of memory", "INFO -x out"]),
        ('"out of memory"', ["ERROR out of memory"]),
        ('"memory of"', []),
        ("memory ERROR", ["ERROR out of memory"]),
        ("out -ERROR", ["INFO -x out"]),
        ('-"out of"', ["error: disk", "INFO -x out"]),
        ("error:", ["error: disk"]),
    ],
)
def test_words(host: Metered, client: Any, pattern: str, found: list[str]) -> None:
    write(host, "ERROR out of memory\nerror: disk\nINFO -x out\n")
    assert [message for _, message in filtered(client, filterPattern=pattern)] == found


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("?ERROR ?INFO", ["ERROR out of memory", "INFO -x out"]),
        ('?"of memory" ?disk', ["ERROR out of memory", "error: disk"]),
        ("?ERROR ?INFO -x", ["ERROR out of memory"]),
        ('?ERROR ?INFO -"of memory"', ["INFO -x out"]),
        ("?ERROR ?INFO out -memory", ["INFO -x out"]),
        ("?nothing", []),
        ('"-x"', ["INFO -x out"]),
        ('{ $.level = "error" }', ['{"level": "error", "ms": 7}']),
        ("{ $.ms >= 7 }", ['{"level": "error", "ms": 7}', '{"level": "info", "ms": 70}']),
    ],
)
def test_any_of_several_terms_and_properties_of_json(
    host: Metered, client: Any, pattern: str, found: list[str]
) -> None:
    write(host, "ERROR out of memory\nerror: disk\nINFO -x out\n")
    write(host, '{"level": "error", "ms": 7}\n{"level": "info", "ms": 70}\n')
    assert [message for _, message in filtered(client, filterPattern=pattern)] == found


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("[a, b]", "patterns of columns ([…]) are not available in this version; give terms or { $.… }"),
        ("x %err.*%", "regular expressions (%…%) are not available in this version"),
        ('ERROR "open', "a quotation mark has no other one"),
        ("{ $.level }", "expected a comparison, found '}'"),
    ],
)
def test_patterns_of_other_kinds_are_refused(host: Metered, client: Any, pattern: str, text: str) -> None:
    write(host, "x\n")
    code, message = refused(client.filter_log_events, logGroupName=GROUP, filterPattern=pattern)
    assert code == "InvalidParameterException"
    assert message.startswith(f"Invalid filter pattern '{pattern}': ")
    assert text in message


def test_found_lines_page_by_page(host: Metered, client: Any) -> None:
    for second in range(60):
        for name in ("e/v/i-1", "e/v/i-2"):
            write(host, f"yes {second}\nno\n", name)
            LogTimes().note([log(host, name)], NOON + second)
    pages = list(
        client.get_paginator("filter_log_events").paginate(
            logGroupName=GROUP, filterPattern="yes", PaginationConfig={"PageSize": 50}
        )
    )
    assert [len(page["events"]) for page in pages] == [50, 50, 20]
    every = [event for page in pages for event in page["events"]]
    assert len({event["eventId"] for event in every}) == 120
    assert [event["timestamp"] for event in every] == sorted(event["timestamp"] for event in every)
    for token in ("", "x", "1/2", "1/2/", "a/b/c"):
        assert (
            refused(client.filter_log_events, logGroupName=GROUP, nextToken=token)[0]
            == "InvalidParameterException"
        )


def test_found_lines_are_not_more_than_an_answer_may_have(host: Metered, client: Any) -> None:
    write(host, "".join(f"{number:03}" + "x" * 100_000 + "\n" for number in range(30)))
    pages = list(client.get_paginator("filter_log_events").paginate(logGroupName=GROUP))
    assert [len(page["events"]) for page in pages] == [10, 10, 10]
    assert [event["message"][:3] for page in pages for event in page["events"]] == [
        f"{n:03}" for n in range(30)
    ]


def test_logs_that_go_while_they_are_read_are_empty(host: Metered, client: Any) -> None:
    write(host, "x\n")
    token = events(client)["nextForwardToken"]
    log(host).unlink()
    assert refused(events, client=client, nextToken=token)[0] == "ResourceNotFoundException"
    assert filtered(client) == []


# several containers in an instance

SHARED = """first | one
second | {"level": "bad"}
W1123 the instance's own
first | two
third | is none of them
"""


@pytest.fixture
def shared(host: Metered, client: Any) -> Any:
    """A client, and the log of an instance of two containers."""
    write(host, SHARED)
    containers_file(log(host)).write_text("first\nsecond")
    return client


def test_each_of_several_containers_has_a_stream_of_its_own(shared: Any) -> None:
    streams = shared.describe_log_streams(logGroupName=GROUP)["logStreams"]
    assert [each["logStreamName"] for each in streams] == ["v/i-1", "v/i-1/first", "v/i-1/second"]
    [group] = shared.describe_log_groups()["logGroups"]
    assert group["storedBytes"] == len(SHARED)

    def of(stream: str) -> list[str]:
        page = shared.get_log_events(logGroupName=GROUP, logStreamName=stream, startFromHead=True)
        return [event["message"] for event in page["events"]]

    assert of("v/i-1/first") == ["one", "two"]
    assert of("v/i-1/second") == ['{"level": "bad"}']
    assert of("v/i-1") == ["W1123 the instance's own", "third | is none of them"]
    for missing in ("v/i-1/third", "v/i-1/first/x"):
        with pytest.raises(ClientError, match="streams are VARIANT/INSTANCE, or VARIANT/INSTANCE/CONTAINER"):
            of(missing)


def test_lines_of_a_container_come_page_by_page(shared: Any) -> None:
    page = shared.get_log_events(logGroupName=GROUP, logStreamName="v/i-1/first", startFromHead=True, limit=1)
    assert [event["message"] for event in page["events"]] == ["one"]
    page = shared.get_log_events(
        logGroupName=GROUP, logStreamName="v/i-1/first", nextToken=page["nextForwardToken"]
    )
    assert [event["message"] for event in page["events"]] == ["two"]
    last = shared.get_log_events(
        logGroupName=GROUP, logStreamName="v/i-1/first", nextToken=page["nextForwardToken"]
    )
    assert (last["events"], last["nextForwardToken"]) == ([], page["nextForwardToken"])
    last = shared.get_log_events(logGroupName=GROUP, logStreamName="v/i-1/first", limit=1)
    assert [event["message"] for event in last["events"]] == ["two"]


def test_lines_of_containers_are_found_once_and_as_they_were_printed(shared: Any) -> None:
    def found(**further: Any) -> list[tuple[str, str]]:
        page = shared.filter_log_events(logGroupName=GROUP, **further)
        return [(event["logStreamName"], event["message"]) for event in page["events"]]

    assert len(found()) == 5
    assert found(logStreamNames=["v/i-1/first"]) == [("v/i-1/first", "one"), ("v/i-1/first", "two")]
    assert found(filterPattern='{ $.level = "bad" }') == [("v/i-1/second", '{"level": "bad"}')]
