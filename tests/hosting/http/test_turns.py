"""One turn of the loop takes a bounded number of chunks; the others have later turns, in order."""

from collections import Counter

import pytest

from halimede.http1.chunks import LINES_AT_ONCE, Chunks
from tests.hosting.http.serving import Tasks, echo, get, serve

CHUNKS = 20_000
HEAD = b"POST /c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_many_chunks_are_taken_in_turns_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = 0
    turns: list[int] = []
    feed = Chunks.feed

    def counted(chunks: Chunks, data: bytes, lines: int) -> int:
        turns.append(turn)
        return feed(chunks, data, lines)

    monkeypatch.setattr(Chunks, "feed", counted)
    with serve(Tasks(echo)) as served, served.client() as client:

        def count() -> None:
            nonlocal turn
            turn += 1
            served.loop.loop.call_soon(count)

        served.loop.call(count)
        body = b"".join(b"1\r\n%c\r\n" % (97 + number % 26) for number in range(CHUNKS))
        client.send(HEAD + body + b"0\r\n\r\n" + get("/after"))
        answer = client.read()
        assert answer.body.endswith(bytes(97 + number % 26 for number in range(CHUNKS)))
        assert client.read().status == 200
    assert len(turns) >= 2 * CHUNKS // LINES_AT_ONCE
    # what has just come and what was left before may be taken in one turn, one after the other
    assert max(Counter(turns).values()) <= 2


def test_request_that_nobody_waits_for_in_the_middle_of_its_chunks_is_forgotten() -> None:
    with serve(Tasks(echo)) as served:
        with served.client() as client:
            client.send(HEAD + b"1\r\nx\r\n" * CHUNKS)
        with served.client() as client:
            assert client.ask(get()).status == 200
