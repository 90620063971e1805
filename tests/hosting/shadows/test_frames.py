"""Messages arrive whole and in order, however the bytes are cut."""

from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.hosting.routing.agreement import ShadowCounts
from halimede.hosting.shadows.frames import Done, Frames, Job, Jobs, Results, Sent


class FakeTransport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = bytearray()

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.written += data


def frames(heard: list[tuple[Any, bytes]]) -> Frames:
    return Frames(lambda message, data: heard.append((message, data)), lambda: None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 40_000), max_size=3), min_size=1, max_size=5),
    st.lists(st.integers(40, 50_000), min_size=1),
)
def test_messages_arrive_whole_and_in_order(sizes: list[list[int]], cuts: list[int]) -> None:
    near, transport = frames([]), FakeTransport()
    near.connection_made(cast("Any", transport))
    sent: list[tuple[Any, bytes]] = []
    for number, pieces in enumerate(sizes):
        job = Job(number, 1, "h", 2, "", b"head", 1.0, sum(pieces), 0, None, False)
        behind = [bytes([number + at]) * size for at, size in enumerate(pieces)]
        near.send(Jobs([job]), behind)
        sent.append((Jobs([job]), b"".join(behind)))
        near.send(Results([number], ShadowCounts(lost=number)))
        sent.append((Results([number], ShadowCounts(lost=number)), b""))
        near.send(Done([Sent(number, 200, 5, False)]))
        sent.append((Done([Sent(number, 200, 5, False)]), b""))
    heard: list[tuple[Any, bytes]] = []
    far = frames(heard)
    data, at = bytes(transport.written), 0
    while at < len(data):
        cut = cuts[at % len(cuts)]
        far.data_received(data[at : at + cut])
        at += cut
    assert heard == sent


def test_what_is_sent_to_nobody_is_dropped() -> None:
    gone: list[bool] = []
    near = Frames(lambda *_: None, lambda: gone.append(True))
    near.send(Done([]))
    transport = FakeTransport()
    near.connection_made(cast("Any", transport))
    near.connection_lost(None)
    near.send(Done([]))
    assert gone == [True]
    assert not transport.written
