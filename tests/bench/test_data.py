import json
from pathlib import Path

import numpy as np
import pytest

from halimede.bench.data import Making, as_json, make, read, strings
from halimede.bench.errors import BenchError
from halimede.bench.model import Model, Tensor

MODEL = Model("m", "", (Tensor("A", "FP32", (-1, 2)), Tensor("S", "BYTES", (-1, -1))), (), max_batch_size=4)
PLAIN = Model("p", "", (Tensor("N", "INT8", (3,)),), ())
SIZES = Making(shapes={"S": (2,)})


def test_made_data_fits_the_model() -> None:
    rows = make(MODEL, Making(shapes={"S": (2,)}, batch=3, string_length=5))
    assert len(rows) == 16
    a, s = rows[0]
    assert (a.shape, len(a.raw)) == ((3, 2), 3 * 2 * 4)
    assert [len(text) for text in as_json(s)] == [5] * 6
    assert rows[0][0].raw != rows[1][0].raw
    assert make(MODEL, SIZES) == make(MODEL, SIZES)


def test_zeros_and_a_given_text() -> None:
    [(a, s)] = make(MODEL, Making(zero=True, shapes={"S": (1,)}, string="x"))
    assert (a.raw, s.raw) == (bytes(8), strings([b"x"]))


@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT64", "FP16", "BF16", "FP64", "BYTES"])
def test_every_datatype_can_be_made(datatype: str) -> None:
    value = make(Model("m", "", (Tensor("A", datatype, (3,)),), ()), Making())[0][0]
    assert len(as_json(value)) == 3


def test_a_file_in_the_form_of_perf_analyzer(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    step = {"A": {"content": [1, 2.5], "shape": [2]}, "S": ["x", "yz"]}
    path.write_text(json.dumps({"data": [step, {"A": {"b64": "AAAAAAAAAAA="}, "S": ["", ""]}]}))
    [[first, second]] = read(path, MODEL, Making(shapes={"S": (2,)}, batch=2))
    assert first[0].raw == np.array([1, 2.5, 1, 2.5], "<f4").tobytes()
    assert first[1].shape == (2, 2)
    assert second[0].raw == bytes(16)
    path.write_text(json.dumps({"data": [[step], [step, step]]}))
    assert [len(stream) for stream in read(path, MODEL, SIZES)] == [1, 2]


def test_a_directory_of_raw_and_numpy_files(tmp_path: Path) -> None:
    np.save(tmp_path / "A.npy", np.array([1, 2], np.float64))
    (tmp_path / "S").write_bytes(b"text")
    [[row]] = read(tmp_path, MODEL, Making(shapes={"S": (1,)}))
    assert [value.raw for value in row] == [np.array([1, 2], "<f4").tobytes(), strings([b"text"])]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "cannot be read"),
        ('{"data": []}', "needs the form"),
        ('{"data": [1]}', "data 0: a request is an object"),
        ('{"data": [{"X": [1]}]}', "no input 'X'; it has N"),
        ('{"data": [{}]}', "data 0: input 'N' is missing"),
        ('{"data": [{"N": [1, 2]}]}', "2 elements of INT8, and the shape \\[3\\] has 3"),
        ('{"data": [{"N": [1, 2, 300]}]}', "INT8 goes from -128 to 127"),
        ('{"data": [{"N": [1, 2, 0.5]}]}', "INT8 has no fractions"),
        ('{"data": [{"N": ["a", "b", "c"]}]}', "no numbers"),
        ('{"data": [{"N": {"b64": "?"}}]}', "N: "),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "data.json"
    path.write_text(text)
    with pytest.raises(BenchError, match=reason):
        read(path, PLAIN, Making())


def test_a_size_that_varies_must_be_given() -> None:
    with pytest.raises(BenchError, match=r"give its sizes, as in --shape S:4"):
        make(MODEL, Making())
    with pytest.raises(BenchError, match=r"\[3\] does not fit"):
        make(MODEL, Making(shapes={"A": (3,), "S": (1,)}))
    with pytest.raises(BenchError, match="no input 'T'; it has A, S"):
        make(MODEL, Making(shapes={"T": (3,)}))


def test_batches_that_the_model_does_not_take() -> None:
    MODEL.check_batch(4)
    with pytest.raises(BenchError, match="batches of up to 4: -b 5"):
        MODEL.check_batch(5)
    with pytest.raises(BenchError, match="does not batch"):
        PLAIN.check_batch(2)
