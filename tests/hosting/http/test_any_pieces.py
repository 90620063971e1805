"""Any body, sent in any pieces, arrives byte for byte."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hosting.http.serving import Served, Tasks, chunked, echo, post, serve

BODIES = st.binary(max_size=3000) | st.integers(0, 700_000).map(
    lambda size: bytes(range(251)) * (size // 251 + 1)
)
SIZES = st.lists(st.integers(1, 70_000), max_size=20)
CHUNKS = st.lists(st.integers(1, 5000), max_size=30)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(Tasks(echo)) as one:
        yield one


@settings(deadline=None, max_examples=60)
@given(bodies=st.lists(st.tuples(BODIES, CHUNKS | st.none()), min_size=1, max_size=4), sizes=SIZES)
def test_any_bodies_in_any_pieces(
    served: Served, bodies: list[tuple[bytes, list[int] | None]], sizes: list[int]
) -> None:
    data = b"".join(post(body) if chunks is None else chunked(body, chunks) for body, chunks in bodies)
    with served.client() as client:
        for size in sizes:
            client.send(data[:size])
            data = data[size:]
        client.send(data)
        for body, _ in bodies:
            assert client.read().body == body
