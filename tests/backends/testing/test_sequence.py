"""The test backends `sequence` and `dyna_sequence`."""

from pathlib import Path

import numpy as np
import pytest

from halimede.backends.batch import Batch
from halimede.backends.testing import sequence
from halimede.core.datatypes import ALL as DATATYPES
from halimede.core.datatypes import BF16, BOOL, BYTES, Datatype
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import InferRequest, InferResponse, NullRequest
from tests.backends.helpers import Loaded, load, request

FLAGS = "int32_false_true: [ 0, 1 ]"


def control(name: str, kind: str, values: str = FLAGS) -> str:
    return f'control_input {{ name: "{name}" control {{ kind: CONTROL_SEQUENCE_{kind} {values} }} }}\n'


START, END, READY = control("START", "START"), control("END", "END"), control("READY", "READY")
CORRID = control("CORRID", "CORRID", "data_type: TYPE_UINT64")
TENSORS = """
    input { name: "INPUT" data_type: TYPE_INT32 dims: [-1] }
    output { name: "OUTPUT" data_type: TYPE_INT32 dims: [-1] }
"""
SEQUENCE = f'backend: "sequence" max_batch_size: 4 sequence_batching {{ {START} {READY} }} {TENSORS}'
OLDEST = (
    f'backend: "sequence" max_batch_size: 4 sequence_batching {{ {START} {READY} oldest {{ }} }} {TENSORS}'
)
DYNA = f"""
    backend: "dyna_sequence" max_batch_size: 4
    sequence_batching {{ {START} {END} {READY} {CORRID} oldest {{ max_candidate_sequences: 4 }} }} {TENSORS}
"""


def step(
    *values: float,
    flags: str = "",
    of: int | str = 1,
    key: int = 1,
    datatype: type = np.int32,
    corrid: type = np.uint64,
    flag: type = np.int32,
    outputs: tuple[str, ...] = (),
) -> InferRequest:
    """A request of the correlation id `of`, as a scheduler hands it on; `flags` are S, E, and N for READY=0."""
    named = object if isinstance(of, str) else corrid
    made = request(
        {
            "INPUT": np.array([values], datatype),
            "START": np.array([["S" in flags]], flag),
            "END": np.array([["E" in flags]], flag),
            "READY": np.array([["N" not in flags]], flag),
            "CORRID": np.array([[of.encode() if isinstance(of, str) else of]], named),
        },
        outputs,
    )
    made.sequence_id, made.sequence_key = of, key
    return made


def run(model: Loaded, *requests: InferRequest) -> list[InferResponse]:
    batch = Batch(model.signature, list(requests), len(requests))
    model.instance.execute(batch)
    return list(batch.responses)


def outputs(model: Loaded, *requests: InferRequest) -> list[list[float]]:
    """What each request of one batch is answered with."""
    return [response.outputs["OUTPUT"].array.tolist()[0] for response in run(model, *requests)]


@pytest.mark.parametrize("config", [SEQUENCE, OLDEST, DYNA])
def test_the_output_is_filled_with_the_sum_since_the_start(tmp_path: Path, config: str) -> None:
    model = load(tmp_path, config)
    assert outputs(model, step(1, 2, flags="S")) == [[3, 3]]
    assert outputs(model, step(4)) == [[7]]
    assert outputs(model, step(-10, 0, 0)) == [[-3, -3, -3]]
    assert outputs(model, step(5, flags="S")) == [[5]]


def test_accumulators_belong_to_rows(tmp_path: Path) -> None:
    model = load(tmp_path, SEQUENCE)
    assert outputs(model, step(1, flags="S"), step(10, flags="S", key=2)) == [[1], [10]]
    assert outputs(model, step(1), step(1, key=2)) == [[2], [11]]
    assert outputs(model, step(1), step(100, flags="S", key=3)) == [[3], [100]]


def test_rows_that_are_not_ready_keep_what_they_have(tmp_path: Path) -> None:
    model = load(tmp_path, SEQUENCE)
    run(model, step(1, flags="S"), step(10, flags="S", key=2))
    like = step(7, flags="N")
    null = NullRequest("m", like.inputs, lambda response, final: None)
    first, second = run(model, null, step(1, key=2))
    assert first.outputs == {}
    assert second.outputs["OUTPUT"].array.tolist() == [[11]]
    assert outputs(model, step(1), step(0, key=2)) == [[2], [11]]


@pytest.mark.parametrize("config", [OLDEST, DYNA])
def test_accumulators_of_oldest_batches_belong_to_correlation_ids(tmp_path: Path, config: str) -> None:
    model = load(tmp_path, config)
    run(model, step(1, flags="S", of=7), step(10, flags="S", of=8, key=2))
    assert outputs(model, step(2, of=8, key=2), step(1, of=7)) == [[12], [2]]


def test_the_end_adds_the_correlation_id(tmp_path: Path) -> None:
    model = load(tmp_path, DYNA)
    assert outputs(model, step(1, flags="SE", of=30), step(2, flags="S", of=5, key=2)) == [[31], [2]]
    assert outputs(model, step(1, 1, flags="E", of=5, key=2)) == [[9, 9]]


@pytest.mark.parametrize(
    ("of", "added"), [((1 << 32) + 5, 5), ((1 << 31) + 1, -(1 << 31) + 1), ("-3", -3), ("12", 12)]
)
def test_the_correlation_id_is_cut_to_the_bits_of_the_output(
    tmp_path: Path, of: int | str, added: int
) -> None:
    config = DYNA.replace("TYPE_UINT64", "TYPE_STRING") if isinstance(of, str) else DYNA
    assert outputs(load(tmp_path, config), step(0, flags="SE", of=of)) == [[added]]


@pytest.mark.parametrize("datatype", ["UINT64", "INT64", "UINT32", "INT32"])
def test_correlation_ids_of_every_datatype_are_added(tmp_path: Path, datatype: str) -> None:
    config = DYNA.replace("TYPE_UINT64", f"TYPE_{datatype}")
    corrid = np.dtype(datatype.lower()).type
    assert outputs(load(tmp_path, config), step(0, flags="SE", of=9, corrid=corrid)) == [[9]]


@pytest.mark.parametrize("of", ["seven", "", "1" * 30])
def test_a_correlation_id_that_is_no_number_fails_its_request_alone(tmp_path: Path, of: str) -> None:
    model = load(tmp_path, DYNA.replace("TYPE_UINT64", "TYPE_STRING"))
    bad, good = run(model, step(1, flags="S", of=of), step(1, flags="S", of="7", key=2))
    assert isinstance(bad.error, InvalidArgumentError)
    assert f"whole numbers of 64 bits, got '{of}'" in bad.error.message
    assert good.error is None


@pytest.mark.parametrize("config", [SEQUENCE, OLDEST, DYNA])
def test_what_belongs_to_a_sequence_is_forgotten_with_it(tmp_path: Path, config: str) -> None:
    model = load(tmp_path, config)
    run(model, step(5, flags="S"))
    model.instance.end_sequence(1, 1, "idle")
    assert outputs(model, step(1, key=2)) == [[1]]


@pytest.mark.parametrize("config", [SEQUENCE, OLDEST, DYNA])
def test_the_end_of_a_sequence_leaves_what_took_its_place(tmp_path: Path, config: str) -> None:
    model = load(tmp_path, config)
    run(model, step(5, flags="S"))
    run(model, step(6, flags="S", key=2))
    model.instance.end_sequence(1, 1, "restart")
    assert outputs(model, step(1, key=2)) == [[7]]


@pytest.mark.parametrize("config", [SEQUENCE, DYNA])
def test_integers_wrap_around(tmp_path: Path, config: str) -> None:
    model = load(tmp_path, config)
    run(model, step((1 << 31) - 1, flags="S"))
    assert outputs(model, step(1)) == [[-(1 << 31)]]


NUMBERS = [datatype for datatype in DATATYPES if datatype not in (BOOL, BYTES, BF16)]


@pytest.mark.parametrize("datatype", NUMBERS, ids=lambda datatype: datatype.name)
@pytest.mark.parametrize("config", [SEQUENCE, DYNA], ids=["sequence", "dyna_sequence"])
def test_numbers_of_every_datatype_are_added(tmp_path: Path, config: str, datatype: Datatype) -> None:
    model = load(tmp_path, config.replace("TYPE_INT32", datatype.config_name))
    kind = datatype.numpy.type
    run(model, step(1, 2, flags="S", datatype=kind))
    (response,) = run(model, step(3, flags="E", of=1, datatype=kind))
    tensor = response.outputs["OUTPUT"]
    assert tensor.datatype is datatype
    assert tensor.array.tolist() == [[6 + (config is DYNA)]]


def test_flags_may_be_numbers_with_a_point(tmp_path: Path) -> None:
    model = load(tmp_path, SEQUENCE.replace("int32_false_true", "fp32_false_true"))
    run(model, step(1, flags="S", flag=np.float32))
    assert outputs(model, step(1, flag=np.float32)) == [[2]]


def test_a_model_without_batching_has_one_accumulator(tmp_path: Path) -> None:
    model = load(tmp_path, SEQUENCE.replace("max_batch_size: 4", "max_batch_size: 0"))
    each = step(1, 2, flags="S")
    each.inputs = {name: tensor.reshaped(tensor.shape[1:]) for name, tensor in each.inputs.items()}
    (response,) = run(model, each)
    assert response.outputs["OUTPUT"].array.tolist() == [3, 3]


def test_no_elements_add_nothing(tmp_path: Path) -> None:
    model = load(tmp_path, SEQUENCE)
    assert outputs(model, step(flags="S")) == [[]]
    assert outputs(model, step(4)) == [[4]]


def test_an_output_that_is_not_wanted_is_left_out(tmp_path: Path) -> None:
    (response,) = run(load(tmp_path, SEQUENCE), step(1, flags="S", outputs=("OTHER",)))
    assert response.outputs == {}


def test_the_delay_is_waited_off_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setattr(sequence, "sleep", naps.append)
    assert not load(tmp_path, SEQUENCE).instance.may_block
    slow = load(tmp_path, DYNA + ' parameters { key: "execute_delay_ms" value { string_value: "3" } }')
    assert slow.instance.may_block
    run(slow, step(1, flags="S"), step(1, flags="S", of=2, key=2))
    assert naps == [0.003]


START_AND_READY = "'START' and 'READY' must be configured as the control inputs"
STATE = 'state { input_name: "IN" output_name: "OUT" data_type: TYPE_INT32 dims: 1 }'
ALL_FOUR = "'START', 'END', 'READY' and 'CORRID' must be configured as the control inputs"


@pytest.mark.parametrize(
    ("config", "old", "new", "message"),
    [
        (SEQUENCE, READY, "", START_AND_READY),
        (SEQUENCE, READY, END, START_AND_READY),
        (SEQUENCE, READY, READY + END, START_AND_READY),
        (SEQUENCE, '"READY"', '"ready"', START_AND_READY),
        (SEQUENCE, f"sequence_batching {{ {START} {READY} }}", "dynamic_batching { }", START_AND_READY),
        (DYNA, CORRID, "", ALL_FOUR),
        (
            DYNA,
            CORRID,
            f"{CORRID} {STATE}",
            "the backend dyna_sequence keeps its accumulators itself; remove state",
        ),
        (DYNA, '"INPUT"', '"IN"', "model input must be named 'INPUT'"),
        (DYNA, '"OUTPUT"', '"OUT"', "model output must be named 'OUTPUT'"),
        (SEQUENCE, '"INPUT" data_type: TYPE_INT32', '"INPUT" data_type: TYPE_STRING', "TYPE_INT32 data-type"),
        (SEQUENCE, '"OUTPUT" data_type: TYPE_INT32', '"OUTPUT" data_type: TYPE_BOOL', "TYPE_INT32 data-type"),
        (
            SEQUENCE,
            '"OUTPUT" data_type: TYPE_INT32',
            '"OUTPUT" data_type: TYPE_INT64',
            "'OUTPUT' with data-type matching 'INPUT'",
        ),
        (
            SEQUENCE,
            "TYPE_INT32 dims: [-1] }\n    output",
            "TYPE_INT32 dims: [2] }\n    output",
            "model must have output 'OUTPUT' with shape matching 'INPUT'",
        ),
        (
            SEQUENCE,
            "TYPE_INT32 dims: [-1] }\n    output",
            "TYPE_INT32 dims: [2, 2] }\n    output",
            "model must have one input 'INPUT' with vector shape, any length",
        ),
        (
            SEQUENCE,
            "output {",
            'input { name: "MORE" data_type: TYPE_INT32 dims: [1] }\n output {',
            "model must have one input 'INPUT' with vector shape, any length",
        ),
        (
            SEQUENCE,
            "output {",
            'output { name: "MORE" data_type: TYPE_INT32 dims: [1] }\n output {',
            "model must have one output 'OUTPUT' with vector shape, any length",
        ),
        (
            SEQUENCE,
            "max_batch_size",
            "model_transaction_policy { decoupled: true } max_batch_size",
            "one response",
        ),
    ],
)
def test_what_the_backend_does_not_have_is_refused(
    tmp_path: Path, config: str, old: str, new: str, message: str
) -> None:
    assert old in config
    with pytest.raises(InvalidArgumentError) as caught:
        load(tmp_path, config.replace(old, new))
    assert message in caught.value.message
    assert caught.value.message.startswith("model 'm': ")
