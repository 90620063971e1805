from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.core.datatypes import BYTES, FP32, INT32, UINT32
from halimede.core.requests import InferRequest, InferResponse, ParameterValue
from halimede.core.tensors import Tensor
from halimede.engine.cache import keys
from halimede.engine.cache.keys import Keys

VERSION = bytes(32)
DATATYPES = {each.name: each for each in (FP32, INT32, UINT32, BYTES)}

KEYS = Keys(VERSION)


def ignore(response: InferResponse | None, final: bool) -> None:
    """Nobody waits."""


def request(
    inputs: Mapping[str, Tensor],
    outputs: tuple[str, ...] = (),
    parameters: dict[str, ParameterValue] | None = None,
    **settings: Any,
) -> InferRequest:
    return InferRequest("m", dict(inputs), ignore, outputs=outputs, parameters=parameters, **settings)


def raw(data: bytes, shape: tuple[int, ...] = (2,), datatype: str = "FP32") -> Tensor:
    return Tensor(DATATYPES[datatype], shape, data)


def key(*args: Any, **settings: Any) -> bytes:
    return KEYS.key(request(*args, **settings))


names = st.text(max_size=4)
tensors = st.tuples(
    st.sampled_from(sorted(DATATYPES)),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.binary(max_size=6),
)
requests = st.tuples(
    st.lists(names, max_size=2).map(tuple),
    st.dictionaries(names, st.booleans() | st.integers(-2, 2) | st.floats(-1, 1) | names, max_size=2),
    st.dictionaries(names, tensors, max_size=3),
)


def made(described: tuple[Any, ...]) -> InferRequest:
    outputs, parameters, inputs = described
    return request(
        {name: raw(data, shape, datatype) for name, (datatype, shape, data) in inputs.items()},
        outputs,
        parameters or None,
    )


def canonical(described: tuple[Any, ...]) -> str:
    outputs, parameters, inputs = described
    return repr((outputs, sorted(parameters.items()), sorted(inputs.items())))


@given(requests, requests)
def test_requests_have_the_same_key_if_and_only_if_they_are_the_same(
    one: tuple[Any, ...], other: tuple[Any, ...]
) -> None:
    same = canonical(one) == canonical(other)
    assert (KEYS.key(made(one)) == KEYS.key(made(other))) is same


@given(requests)
def test_a_request_has_the_same_key_each_time_whatever_the_order_of_inputs(one: tuple[Any, ...]) -> None:
    outputs, parameters, inputs = one
    turned = dict(reversed(inputs.items())), dict(reversed(parameters.items()))
    assert Keys(VERSION).key(made(one)) == KEYS.key(made((outputs, turned[1], turned[0])))


def test_what_triton_leaves_out_is_part_of_the_key() -> None:
    data = bytes(range(8))
    base = key({"IN": raw(data)})
    assert key({"IN": raw(data, (1, 2))}) != base
    assert key({"IN": raw(data, datatype="INT32")}) != base
    assert key({"IN": raw(data)}, ("OUT",)) != base
    assert key({"IN": raw(data)}, ("OUT", "OTHER")) != key({"IN": raw(data)}, ("OUT",))
    assert key({"IN": raw(data)}, (), {"temperature": 1}) != base
    assert key({"IN": raw(data)}, (), {"temperature": 1}) != key({"IN": raw(data)}, (), {"temperature": True})
    assert Keys(bytes([1] * 32)).key(request({"IN": raw(data)})) != base


def test_bytes_cannot_move_from_one_input_to_the_next() -> None:
    one = {"A": raw(b"ab", (2,)), "B": raw(b"c", (2,))}
    other = {"A": raw(b"a", (2,)), "B": raw(b"bc", (2,))}
    assert key(one) != key(other)


def test_id_priority_and_timeout_do_not_matter() -> None:
    base = key({"IN": raw(b"12345678")})
    assert key({"IN": raw(b"12345678")}, id="7", priority=2, timeout_us=50) == base


def test_an_array_has_the_key_of_its_bytes() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert key({"IN": Tensor.from_array(FP32, array)}) == key({"IN": raw(array.tobytes(), (2, 3))})
    strings = Tensor.from_array(BYTES, np.array([b"a", b"bc"], np.object_))
    assert key({"IN": strings}) == key({"IN": raw(bytes(strings.data), (2,), "BYTES")})
    crosswise = Tensor.from_array(FP32, array.T)
    assert key({"IN": crosswise}) == key({"IN": raw(array.T.tobytes(), (3, 2))})


@pytest.mark.parametrize("elements", [100, 10_000])
def test_each_byte_of_small_and_large_inputs_counts(elements: int) -> None:
    data = np.zeros(elements, np.float32)
    found = {key({"IN": raw(data.tobytes(), (elements,))})}
    for place in (0, 1, elements // 2, elements - 1):
        data[:] = 0
        data[place] = 1
        found.add(key({"IN": raw(data.tobytes(), (elements,))}))
        found.add(key({"A": raw(b"", (0,)), "IN": raw(data.tobytes(), (elements,))}))
    assert len(found) == 9


def test_what_is_remembered_of_requests_is_bounded() -> None:
    maker = Keys(VERSION)
    made = [maker.key(request({"IN": raw(bytes(4), (number,))})) for number in range(3000)]
    assert len(set(made)) == 3000
    assert len(maker._prefixes) <= 1000  # noqa: SLF001 - what is left is seen only inside
    assert [maker.key(request({"IN": raw(bytes(4), (number,))})) for number in range(3000)] == made


def test_without_blake3_keys_are_made_by_blake2b(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(10_000)
    with_it = key({"IN": raw(data)})
    monkeypatch.setattr(keys, "_hash", keys._blake2b)  # noqa: SLF001 - the hash where BLAKE3 is missing
    without = key({"IN": raw(data)})
    assert len(with_it) == len(without) == 32
    assert with_it != without
    assert key({"IN": raw(data)}) == without != key({"IN": raw(data[:-1] + b"x")})
