import tracemalloc

import numpy as np

from halimede.core.clock import VirtualClock
from halimede.core.datatypes import BYTES, FP32
from halimede.core.requests import InferResponse, RepeatingResponse
from halimede.core.tensors import Tensor
from halimede.engine.cache.entries import Entry
from halimede.engine.cache.local import LocalCache


def response(size: int = 100, **names: bytes) -> InferResponse:
    data = names or {"OUT": bytes(size)}
    return InferResponse({name: Tensor(FP32, (len(each) // 4,), each) for name, each in data.items()})


def kept(size: int = 100, keys: set[bytes] | None = None) -> Entry:
    return Entry.of(response(size), set() if keys is None else keys, 1 << 30)


def test_what_was_inserted_is_found_and_what_was_not_is_not() -> None:
    cache = LocalCache(10_000, VirtualClock())
    entry = kept()
    cache.insert(b"a", entry)
    assert cache.get(b"a") is entry
    assert cache.get(b"b") is None
    assert len(cache) == 1
    assert cache.used == entry.size > 100


def test_those_used_longest_ago_make_room() -> None:
    one = kept().size
    cache = LocalCache(3 * one, VirtualClock())
    for key in (b"a", b"b", b"c"):
        cache.insert(key, kept())
    assert cache.get(b"a") is not None
    cache.insert(b"d", kept())
    assert [key for key in (b"a", b"b", b"c", b"d") if cache.get(key)] == [b"a", b"c", b"d"]
    assert cache.counts.evictions == 1
    cache.insert(b"e", kept(100 + one))
    assert [key for key in (b"a", b"c", b"d", b"e") if cache.get(key)] == [b"d", b"e"]
    assert cache.used <= cache.size


def test_an_entry_takes_the_place_of_one_of_its_key() -> None:
    cache = LocalCache(10_000, VirtualClock())
    cache.insert(b"a", kept(100))
    cache.insert(b"a", kept(200))
    assert len(cache) == 1
    assert cache.used == kept(200).size
    assert cache.counts.evictions == 0


def test_the_entries_of_a_version_go_with_it() -> None:
    clock = VirtualClock()
    cache = LocalCache(1 << 30, clock)
    keys: set[bytes] = set()
    for number in range(25_000):
        cache.insert(b"%d" % number, kept(4, keys))
    others: set[bytes] = set()
    cache.insert(b"other", kept(4, others))
    assert len(keys) == 25_000
    cache.forget(keys)
    assert len(cache) == 15_001  # the rest goes in the next turns of the loop
    clock.run()
    assert len(cache) == 1
    assert cache.get(b"other") is not None
    assert cache.used == kept(4).size


def test_an_eviction_leaves_nothing_behind() -> None:
    keys: set[bytes] = set()
    cache = LocalCache(2 * kept().size, VirtualClock())
    for number in range(10):
        cache.insert(b"%d" % number, kept(keys=keys))
    assert keys == {b"8", b"9"}


def test_the_size_of_entries_is_what_they_take() -> None:
    for size, count in ((4, 5000), (1024, 3000), (65_536, 100)):
        cache = LocalCache(1 << 30, VirtualClock())
        keys: set[bytes] = set()
        tracemalloc.start()
        for number in range(count):
            entry = Entry.of(response(size), keys, 1 << 30)
            cache.insert(number.to_bytes(32, "big"), entry)
        del entry
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert 0.85 * taken < cache.used < 1.3 * taken, (size, taken, cache.used)


def test_an_entry_holds_nothing_but_its_own_bytes() -> None:
    whole = bytearray(1 << 20)
    view = memoryview(whole)[16:32]
    entry = Entry.of(InferResponse({"OUT": Tensor(FP32, (4,), view)}), set(), 1 << 30)
    whole[:] = b"x" * len(whole)
    assert entry.response().outputs["OUT"].array.tolist() == [0, 0, 0, 0]
    assert [type(data) for _, _, _, data in entry.tensors] == [bytes]


def test_each_response_has_tensors_and_parameters_of_its_own() -> None:
    strings = Tensor.from_array(BYTES, np.array([b"a", b"bc"], np.object_))
    entry = Entry.of(InferResponse({"S": strings}, {"p": 1}), set(), 1 << 30)
    one, other = entry.response(), entry.response()
    assert one.outputs["S"].array.tolist() == [b"a", b"bc"]
    assert one.outputs["S"] is not other.outputs["S"]
    assert one.outputs["S"].shared
    assert one.parameters == {"p": 1}
    assert one.parameters is not other.parameters
    one.outputs.clear()
    assert list(other.outputs) == ["S"]


def test_outputs_of_one_name_are_kept() -> None:
    tensors = [("OUT", Tensor(FP32, (1,), bytes(4))), ("OUT", Tensor(FP32, (2,), bytes(8)))]
    again = Entry.of(RepeatingResponse(tensors), set(), 1 << 30).response()
    assert [(name, tensor.shape) for name, tensor in again.tensors()] == [("OUT", (1,)), ("OUT", (2,))]
