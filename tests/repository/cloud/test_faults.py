"""Buckets that break off, refuse, change, lie and hang."""

import re
import threading
from collections import Counter
from pathlib import Path

import pytest

from halimede.core.errors import HalimedeError
from halimede.repository.cloud import downloads
from halimede.repository.cloud.failures import BucketError, ReplacedError
from halimede.repository.layout import find_models
from tests.repository.cloud.mirrors import IDENTITY, fetch, files, mirror
from tests.support.buckets import Answer, Bucket, Proxy, Request
from tests.support.waiting import wait_until

CONTENT = bytes(range(256)) * 40
PIECE = 4096
"""Bytes of a piece here; the content has three."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(downloads, "_CHUNK_BYTES", 512)
    monkeypatch.setattr(downloads, "_FIRST_PAUSE_S", 0.001)


@pytest.fixture
def url(bucket: Bucket, front: Proxy) -> str:
    """A repository behind the proxy."""
    bucket.put_all({"m/config.pbtxt": IDENTITY, "m/1/model": CONTENT})
    return bucket.url(endpoint=front.url)


def of_model(request: Request) -> bool:
    """Whether a request is for the model's file."""
    return request.path.endswith("/1/model")


def begin(request: Request) -> int:
    """The first byte that a request asks for."""
    found = re.fullmatch(r"bytes=(\d+)-\d+", request.headers["range"])
    assert found is not None
    return int(found[1])


def test_an_answer_that_breaks_off_is_continued_where_it_ended(
    url: str, front: Proxy, tmp_path: Path
) -> None:
    cut = Counter[int]()

    def fault(request: Request, answer: Answer) -> Answer:
        if of_model(request) and not cut[begin(request) // PIECE]:
            cut[begin(request) // PIECE] += 1
            answer.sent = 1500
        return answer

    front.fault = fault
    with mirror(url, tmp_path) as found:
        assert files(fetch(found, "m"))["1/model"] == CONTENT
    asked = front.gets("/1/model")
    assert len(asked) == 6
    assert sorted(begin(each) for each in asked)[::2] == [0, PIECE, 2 * PIECE]
    assert all(begin(each) % PIECE > 0 for each in sorted(asked, key=begin)[1::2])
    assert len({each.headers["if-match"] for each in asked}) == 1


def test_the_next_server_fetches_only_the_pieces_that_are_missing(
    url: str, front: Proxy, tmp_path: Path
) -> None:
    def pieces() -> int:
        """How many are there."""
        return sum(journal.read_bytes().count(1) for journal in tmp_path.glob("*/partial/m/*.pieces"))

    def away(request: Request, answer: Answer) -> Answer | None:
        if not of_model(request) or begin(request) < 2 * PIECE:
            return answer
        wait_until(lambda: pieces() >= 2)
        return None

    front.fault = away
    with mirror(url, tmp_path) as found, pytest.raises(BucketError, match="gives no proper answer"):
        fetch(found, "m")
    before = {begin(each) for each in front.gets("/1/model")}
    assert before == {0, PIECE, 2 * PIECE}
    front.fault = lambda _request, answer: answer
    front.requests.clear()
    with mirror(url, tmp_path) as found:
        assert files(fetch(found, "m"))["1/model"] == CONTENT
    assert [begin(each) for each in front.gets("/1/model")] == [2 * PIECE]


def test_a_fetch_that_fails_changes_nothing_of_what_is_there(
    url: str, bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    with mirror(url, tmp_path) as found:
        before = files(fetch(found, "m"))
        bucket.put("repository/m/config.pbtxt", IDENTITY + "max_batch_size: 1\n")
        bucket.put("repository/m/1/model", b"new" * 1000)
        front.fault = lambda request, answer: None if of_model(request) else answer
        with pytest.raises(BucketError):
            fetch(found, "m")
        assert files(found.directory / "m") == before
        front.fault = lambda _request, answer: answer
        assert files(fetch(found, "m"))["1/model"] == b"new" * 1000


def test_attempts_that_bring_nothing_are_bounded(url: str, front: Proxy, tmp_path: Path) -> None:
    def fault(request: Request, answer: Answer) -> Answer:
        answer.sent = 0 if of_model(request) else None
        return answer

    front.fault = fault
    with mirror(url, tmp_path) as found, pytest.raises(BucketError) as caught:
        fetch(found, "m")
    assert "cannot read" in str(caught.value)
    assert "key 'repository/m/1/model'" in str(caught.value)
    assert "Check the endpoint and the network" in str(caught.value)
    assert len(front.gets("/1/model")) <= 3 * 5 * 3  # pieces, attempts, and obstore's own


def test_a_server_that_recovers_is_asked_again(url: str, front: Proxy, tmp_path: Path) -> None:
    seen = Counter[str]()

    def fault(request: Request, answer: Answer) -> Answer:
        what = "list" if request.lists else request.headers["range"]
        seen[what] += 1
        return Answer.error(503, "SlowDown", "Please reduce your request rate") if seen[what] == 1 else answer

    front.fault = fault
    with mirror(url, tmp_path) as found:
        assert files(fetch(found, "m"))["1/model"] == CONTENT


@pytest.mark.parametrize(
    ("lists", "doing", "key"), [(True, "list", "repository/m"), (False, "read", "repository/m/config.pbtxt")]
)
def test_what_is_forbidden_is_told_at_once_with_what_to_check(
    lists: bool, doing: str, key: str, url: str, bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    def fault(request: Request, answer: Answer) -> Answer:
        return Answer.error(403, "AccessDenied", "Access Denied") if request.lists == lists else answer

    front.fault = fault
    with mirror(url, tmp_path) as found, pytest.raises(BucketError) as caught:
        fetch(found, "m")
    assert str(caught.value) == (
        f"cannot {doing} {url} (bucket '{bucket.name}', key '{key}'): S3 refuses it (403 Forbidden: AccessDenied: "
        "Access Denied). Check the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or the "
        "file that TRITON_CLOUD_CREDENTIAL_PATH names) and that they may list the bucket and read its objects"
    )
    assert len([each for each in front.requests if each.lists == lists]) == 1


def test_an_object_that_is_replaced_after_it_was_listed_is_told(
    url: str, bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    with mirror(url, tmp_path) as found:
        found.update("m")
        bucket.put("repository/m/1/model", CONTENT[::-1])
        with pytest.raises(ReplacedError, match=r"was replaced or removed after it was listed .*Try again"):
            found.fetch("m", "", None, lambda _: False)
        assert "1/model" not in files(found.directory / "m")
        assert files(fetch(found, "m"))["1/model"] == CONTENT[::-1]


def test_an_object_that_is_replaced_while_it_is_fetched_is_never_mixed(
    url: str, bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    replaced = threading.Event()

    def fault(request: Request, answer: Answer) -> Answer:
        if of_model(request) and begin(request) == 0 and not replaced.is_set():
            bucket.put("repository/m/1/model", CONTENT[::-1])
            replaced.set()
        elif of_model(request):
            replaced.wait(60)
        return answer

    front.fault = fault
    with mirror(url, tmp_path) as found:
        try:
            content = files(fetch(found, "m"))["1/model"]
        except ReplacedError:
            content = files(fetch(found, "m"))["1/model"]
        assert content in (CONTENT, CONTENT[::-1])
        assert files(fetch(found, "m"))["1/model"] == CONTENT[::-1]


def test_an_object_that_is_removed_after_it_was_listed_is_told(
    url: str, bucket: Bucket, tmp_path: Path
) -> None:
    with mirror(url, tmp_path) as found:
        found.update("m")
        bucket.delete("repository/m/1/model")
        with pytest.raises(ReplacedError, match="replaced or removed after it was listed"):
            found.fetch("m", "", None, lambda _: False)


def test_an_answer_with_another_etag_or_size_is_refused(url: str, front: Proxy, tmp_path: Path) -> None:
    def other_tag(request: Request, answer: Answer) -> Answer:
        if of_model(request):
            answer.headers["etag"] = '"another"'
        return answer

    def other_size(request: Request, answer: Answer) -> Answer:
        if of_model(request):
            answer.headers["content-range"] = answer.headers["content-range"].replace(
                str(len(CONTENT)), "77777"
            )
        return answer

    for fault, complaint in (
        (other_tag, "with ETag 'another' come where"),
        (other_size, "77,777 bytes with ETag"),
    ):
        front.fault = fault
        with mirror(url, tmp_path) as found, pytest.raises(ReplacedError, match=complaint):
            fetch(found, "m")


def test_a_server_that_ignores_ranges_is_refused(url: str, front: Proxy, tmp_path: Path) -> None:
    def fault(request: Request, answer: Answer) -> Answer:
        if of_model(request):
            headers = {name: value for name, value in answer.headers.items() if name != "content-range"}
            return Answer(200, headers, CONTENT)
        return answer

    front.fault = fault
    with mirror(url, tmp_path) as found, pytest.raises(BucketError, match="cannot read"):
        fetch(found, "m")


@pytest.mark.parametrize("body", [b"", b"<ListBucketResult><Contents>", b"<html>it works!</html>", b"\0\xff"])
def test_a_listing_that_is_cut_or_none_at_all_changes_nothing(
    body: bytes, url: str, front: Proxy, tmp_path: Path
) -> None:
    with mirror(url, tmp_path) as found:
        before = files(fetch(found, "m"))
        front.fault = lambda request, answer: Answer(200, {}, body) if request.lists else answer
        for act in (found.update_all, found.update_names, lambda: found.update("m"), found.check):
            with pytest.raises(BucketError, match=r"cannot (list|read)"):
                act()
        assert files(found.directory / "m") == before
        assert find_models([found.directory]).keys() == {"m"}


def test_a_listing_in_another_order_is_the_same(url: str, front: Proxy, tmp_path: Path) -> None:
    def reverse(request: Request, answer: Answer) -> Answer:
        if request.lists:
            parts = re.findall(rb"<Contents>.*?</Contents>", answer.body, re.DOTALL)
            head, rest = answer.body.split(parts[0], 1)
            answer.body = head + b"".join(reversed(parts)) + rest.rpartition(b"</Contents>")[2]
        return answer

    with mirror(url, tmp_path) as found:
        before = files(fetch(found, "m"))
        front.fault = reverse
        front.requests.clear()
        assert files(fetch(found, "m")) == before
        assert front.gets("/1/model") == []


def test_a_bucket_that_is_away_is_told_with_its_address(tmp_path: Path) -> None:
    url = "s3://http://127.0.0.1:9/bucket/repository"
    with mirror(url, tmp_path) as found, pytest.raises(BucketError) as caught:
        found.update_all()
    assert str(caught.value) == (
        f"cannot list {url} (bucket 'bucket', key 'repository'): http://127.0.0.1:9 gives no proper answer (GET "
        "http://127.0.0.1:9/bucket?list-type=2&prefix=repository%2F: HTTP error: error sending request: Connection "
        "refused). Check the endpoint and the network"
    )


def test_a_fetch_that_hangs_ends_when_the_server_stops(url: str, front: Proxy, tmp_path: Path) -> None:
    gate, asked = threading.Event(), threading.Event()

    def fault(request: Request, answer: Answer) -> Answer:
        if of_model(request):
            answer.gate, answer.sent = gate, 1000
            asked.set()
        return answer

    front.fault = fault
    fetches: list[BaseException] = []
    with mirror(url, tmp_path) as found:

        def run() -> None:
            try:
                fetch(found, "m")
            except HalimedeError as error:
                fetches.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        assert asked.wait(60)
        found._requests.stop()  # noqa: SLF001 - what a server that stops calls
        thread.join(60)
        assert not thread.is_alive()
        gate.set()
    assert [str(each) for each in fetches] == ["Server is stopping, models are no longer fetched"]


def test_a_full_disk_is_told_with_what_to_do(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with mirror(url, tmp_path) as found:
        monkeypatch.setattr("os.pwrite", full)
        with pytest.raises(
            HalimedeError, match="No space left on device; free some of the disk, or name another"
        ):
            fetch(found, "m")


def test_many_threads_note_and_forget_the_same_models(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put_all({f"m{number}/config.pbtxt": IDENTITY for number in range(3)})
    errors: list[BaseException] = []
    with mirror(bucket.url(), tmp_path) as found:

        def look(number: int) -> None:
            try:
                for _ in range(5):
                    found.update_all()
                    found.update(f"m{number % 3}")
                    found.update_names()
                    found.fetch(f"m{number % 3}", "", None, lambda _: True)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=look, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert errors == []
        assert all(files(found.directory / f"m{number}") for number in range(3))
