"""The strategy direct: a row of the batch for each sequence."""

from itertools import chain

import pytest

from halimede.config.model_config_pb2 import TYPE_INT32, TYPE_STRING, TYPE_UINT32, TYPE_UINT64, ModelConfig
from halimede.core.datatypes import BYTES
from halimede.core.tensors import Tensor, encode_bytes
from tests.engine.scheduling.sequences.bench import Bench, configuration

DELAYED = "direct { max_queue_delay_microseconds: 100 minimum_slot_utilization: 0.75 }"


def test_each_sequence_stays_in_its_row() -> None:
    bench = Bench(configuration())
    for name in (1, 2, 3):
        bench.send(name, "S", settle=False)
    bench.clock.run()
    bench.finish()
    bench.send(3, settle=False)
    bench.send(1)
    bench.finish()
    bench.send(2)
    assert bench.runner.batches == [["1.1", "2.1", "3.1"], ["1.2", "-", "3.2"], ["-", "2.2"]]
    assert bench.answers == ["1.1", "2.1", "3.1", "1.2", "3.2"]


def test_controls_tell_where_in_its_sequence_a_request_stands() -> None:
    bench = Bench(configuration())
    bench.send(7, "S", settle=False)
    bench.send(8, "SE")
    bench.finish()
    bench.send(7, "E")
    bench.finish()
    bench.send(9, "S", settle=False)
    bench.send(10, "S")
    bench.finish()
    bench.send(10)
    rows = [{key: values for key, values in inputs.items() if key != "IN"} for inputs in bench.runner.inputs]
    assert rows[0] == {"START": [1, 1], "READY": [True, True], "END": [0.0, 1.0], "ID": [7, 8]}
    assert rows[1] == {"START": [0], "READY": [True], "END": [1.0], "ID": [7]}
    assert rows[3] == {"START": [0, 0], "READY": [False, True], "END": [0.0, 0.0], "ID": [0, 10]}


def with_id(datatype: int) -> ModelConfig:
    """Controls whose correlation id has this datatype."""
    config = configuration()
    config.sequence_batching.control_input[3].control[0].data_type = datatype  # type: ignore[assignment]
    return config


def test_a_row_without_a_request_has_no_id_and_empty_texts() -> None:
    config = with_id(TYPE_STRING)
    config.input[0].data_type = TYPE_STRING
    bench = Bench(config)

    def send(correlation_id: str, flags: str, text: str) -> None:
        name = bench.send(correlation_id, flags, settle=False)
        tensor = Tensor(BYTES, (1, 1), encode_bytes([text.encode()]))
        bench.requests[name].inputs |= {"IN": tensor}

    send("one", "S", "a")
    send("größer", "S", "b")
    bench.clock.run()
    send("größer", "", "c")
    bench.finish()
    both = [{name: inputs[name] for name in ("IN", "ID")} for inputs in bench.runner.inputs]
    assert both == [
        {"IN": [b"a", b"b"], "ID": [b"one", "größer".encode()]},
        {"IN": [b"", b"c"], "ID": [b"", "größer".encode()]},
    ]


@pytest.mark.parametrize(
    ("datatype", "told"), [(TYPE_INT32, -5), (TYPE_UINT32, 2**32 - 5), (TYPE_UINT64, 2**40 - 5)]
)
def test_an_id_is_told_with_as_many_bits_as_its_control_has(datatype: int, told: int) -> None:
    bench = Bench(with_id(datatype))
    bench.send(2**40 - 5, "S")
    assert bench.runner.inputs[0]["ID"] == [told]


def test_a_batch_knows_its_bytes_and_its_rows_without_requests() -> None:
    bench = Bench(configuration())
    for number in (1, 2, 3):
        bench.requests[bench.send(number, "S", settle=False)].byte_size = 10 * number
    bench.clock.run()
    bench.requests[bench.send(3, settle=False)].byte_size = 7
    (batch,) = bench.runner.running
    assert (batch.nulls, batch.byte_size) == (0, 60)
    bench.finish()
    (batch,) = bench.runner.running
    assert (batch.nulls, batch.byte_size) == (2, 7)


def test_requests_that_come_meanwhile_wait_for_the_next_batch() -> None:
    bench = Bench(configuration())
    bench.send(1, "S")
    bench.send(2, "S")
    bench.send(1)
    assert bench.runner.batches == [["1.1"]]
    bench.finish()
    assert bench.runner.batches[1] == ["1.2", "2.1"]


def test_a_slot_is_free_for_the_next_sequence_when_the_end_is_in_a_batch() -> None:
    bench = Bench(configuration(rows=1))
    bench.send(1, "SE")
    bench.send(2, "S")
    bench.send(2, "E")
    bench.send(3, "SE")
    assert bench.runner.batches == [["1.1"]]
    for _ in range(4):
        bench.finish()
    assert bench.runner.batches == [["1.1"], ["2.1"], ["2.2"], ["3.1"]]
    assert bench.idle()


def test_sequences_spread_over_instances_before_they_share_one() -> None:
    bench = Bench(configuration(rows=2), instances=3)
    for name in range(1, 6):
        bench.send(name, "S")
        bench.send(name)
    for _ in range(2):
        for number in range(3):
            if bench.runners[number].running:
                bench.finish(number)
    firsts = [
        [row for batch in runner.batches for row in batch if row.endswith(".1")] for runner in bench.runners
    ]
    assert sorted(map(len, firsts)) == [1, 2, 2]
    assert sorted(chain.from_iterable(firsts)) == [f"{name}.1" for name in range(1, 6)]
    assert {each[0] for each in firsts} == {"1.1", "2.1", "3.1"}


def test_a_model_without_batching_has_one_slot() -> None:
    bench = Bench(configuration(rows=0))
    bench.send(1, "S")
    bench.send(2, "S")
    bench.finish()
    bench.send(1, "E")
    bench.finish()
    assert bench.runner.batches == [["1.1"], ["1.2"], ["2.1"]]
    assert bench.runner.inputs[0]["START"] == [1]


def test_few_ready_slots_wait_for_more_until_the_delay_is_over() -> None:
    bench = Bench(configuration(DELAYED))
    bench.send(1, "S")
    bench.wait(60)
    bench.send(2, "S")
    bench.wait(39)
    assert bench.runner.batches == []
    bench.wait(1)
    assert bench.runner.batches == [["1.1", "2.1"]]


def test_enough_ready_slots_do_not_wait() -> None:
    bench = Bench(configuration(DELAYED))
    for name in (1, 2, 3):
        assert bench.runner.batches == []
        bench.send(name, "S")
    assert bench.runner.batches == [["1.1", "2.1", "3.1"]]


@pytest.mark.parametrize(
    "strategy", ["direct { max_queue_delay_microseconds: 100 }", "direct { minimum_slot_utilization: 1.0 }"]
)
def test_delay_and_utilization_work_only_together(strategy: str) -> None:
    bench = Bench(configuration(strategy))
    bench.send(1, "S")
    assert bench.runner.batches == [["1.1"]]


def test_a_delayed_request_that_is_cancelled_runs_no_batch() -> None:
    bench = Bench(configuration(DELAYED))
    name = bench.send(1, "S")
    bench.cancel(name)
    bench.wait(1000)
    assert bench.runner.batches == []
    assert bench.errors == {name: "[request id: 1.1] the request was cancelled while it was queued"}
    assert bench.idle()


def test_a_request_of_another_shape_waits_for_the_next_batch() -> None:
    bench = Bench(configuration(dims="-1"))
    bench.send(1, "S", shape=(2,), settle=False)
    bench.send(2, "S", shape=(3,), settle=False)
    bench.send(3, "S", shape=(2,))
    bench.finish()
    assert bench.runner.batches == [["1.1", "-", "3.1"], ["-", "2.1"]]
    assert bench.runner.inputs[0]["IN"] == [0.0] * 6
    assert bench.runner.inputs[1]["IN"] == [0.0] * 6


def test_batches_that_run_at_once_are_answered_in_order() -> None:
    bench = Bench(configuration(), at_once=True)
    for flags in ("S", "", "E"):
        bench.send(1, flags, settle=False)
    bench.clock.run()
    assert bench.answers == ["1.1", "1.2", "1.3"]
    assert bench.idle()


def test_the_next_batch_begins_before_the_last_one_is_answered() -> None:
    bench = Bench(configuration())
    bench.send(1, "S")
    bench.send(1)
    answered: list[list[str]] = []
    bench.runner.on_run = lambda: answered.append(list(bench.answers))
    bench.finish()
    assert answered == [[]]
    assert bench.answers == ["1.1"]


def test_batches_that_were_given_back_run_again_in_their_rows() -> None:
    bench = Bench(configuration(rows=2))
    bench.send(1, "S", settle=False)
    bench.send(2, "SE")
    bench.send(3, "SE")  # gets the slot of 2
    (batch,) = bench.runner.running
    bench.runner.running.clear()
    bench.runner.free = True
    bench.batcher.returned(batch)
    bench.clock.run()
    bench.finish()
    assert bench.runner.batches == [["1.1", "2.1"], ["1.1", "2.1"], ["-", "3.1"]]


def test_a_request_that_was_given_back_may_be_cancelled() -> None:
    bench = Bench(configuration(rows=2))
    bench.send(1, "S", settle=False)
    bench.send(2, "SE")
    (batch,) = bench.runner.running
    bench.runner.running.clear()
    bench.batcher.returned(batch)
    bench.cancel("2.1")
    bench.runner.free = True
    bench.batcher.changed(bench.runner)
    assert bench.runner.batches[1:] == [["1.1"]]
    assert "cancelled" in bench.errors["2.1"]
