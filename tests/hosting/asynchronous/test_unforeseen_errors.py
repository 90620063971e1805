"""Errors that nobody foresaw, such as those of a disk, leave no request behind: it is tried again, or fails."""

import json
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.asynchronous.journal import Journal
from halimede.hosting.asynchronous.processing import Processing
from tests.hosting.asynchronous.serving import QUICK, AsyncHost, async_host
from tests.hosting.instances import fake_instance

_FEW, _MANY = 2, 1 << 30
"""How often something fails: less often than it is tried, and always."""


def fail(monkeypatch: pytest.MonkeyPatch, where: object, name: str, times: int) -> list[int]:
    """Let the next calls of a method fail: how many of them have."""
    original: Callable[..., Awaitable[Any]] = getattr(where, name)
    failed: list[int] = []

    async def call(*arguments: Any) -> Any:
        if len(failed) < times:
            failed.append(1)
            raise sqlite3.OperationalError("disk I/O error")
        return await original(*arguments)

    monkeypatch.setattr(where, name, call)
    return failed


def ask(host: AsyncHost, count: int = 1) -> list[dict[str, Any]]:
    """What InvokeEndpointAsync answers, after all requests are answered."""
    answers = [host.invoke(b"%d" % number) for number in range(count)]
    host.settle()
    return answers


def test_request_is_processed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = fail(monkeypatch, Processing, "outcome", _FEW)
    with async_host(tmp_path) as host, fake_instance() as instance:
        host.publish_route(instance)
        [answer] = ask(host)
        assert host.object(answer["OutputLocation"]) == b"0"
        assert len(failed) == _FEW


def test_request_that_can_never_be_processed_fails_and_its_topic_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = fail(monkeypatch, Processing, "outcome", _MANY)
    with async_host(tmp_path) as host, fake_instance() as instance:
        host.publish_route(instance)
        [answer] = ask(host)
        document = json.loads(host.object(answer["FailureLocation"]))
        assert document["ErrorCode"] == "InternalFailure"
        assert document["Message"] == "the host failed: OperationalError: disk I/O error"
        [notice] = host.notices
        assert json.loads(notice.text)["invocationStatus"] == "Failed"
        assert host.metric("InvocationFailures", "A") == (1, 1)
        assert len(failed) == 1 + len(QUICK.pauses_s)


def test_results_that_cannot_be_written_together_are_written_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        failed = fail(monkeypatch, host.objects, "write_small", _MANY)
        host.publish_route(instance)
        answers = ask(host, 20)
        assert [host.object(each["OutputLocation"]) for each in answers] == [b"%d" % n for n in range(20)]
        assert failed


def test_result_that_can_never_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        fail(monkeypatch, host.objects, "write_small", _MANY)
        fail(monkeypatch, host.objects, "write", _MANY)
        host.publish_route(instance)
        ask(host)
        [notice] = host.notices
        assert "disk I/O error" in json.loads(notice.text)["failureReason"]
        assert host.metric("ResponseUploadFailures") == (2, 2)  # the result, and the text of the error


def test_answered_requests_are_taken_out_of_the_journal_when_it_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        failed = fail(monkeypatch, Journal, "remove", 1)
        host.publish_route(instance)
        ask(host)
        assert failed
        host.restart()
        assert host.backlog == 0
        assert len(instance.seen) == 1


def test_long_queue_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        route = host.publish_route()
        answer = host.invoke(b"x")
        host.restart()
        failed = fail(monkeypatch, Journal, "read", 1)
        host.join(route, instance)
        host.settle()
        assert host.object(answer["OutputLocation"]) == b"x"
        assert failed


def test_request_of_which_nobody_can_be_told_is_answered_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_always(*_: Any) -> str:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr("halimede.hosting.asynchronous.answers.message_of", fail_always)
    with async_host(tmp_path) as host, fake_instance() as instance:
        host.publish_route(instance)
        [answer] = ask(host)
        assert host.object(answer["OutputLocation"]) == b"0"
        assert host.notices == []
