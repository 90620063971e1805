"""Models that call each other while they hold what the called ones need; tritonserver hangs in each of these cases."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.python_models.support import (
    DECOUPLED,
    FLOATS,
    ONES,
    Models,
    Stream,
    answering,
    executing,
    kill,
)
from tests.python_models.test_rate_limiter import limited
from tests.support.waiting import wait_until

INNER = answering("x + 1")


@pytest.fixture(scope="module")
def models(limited_models: Models) -> Models:
    return limited_models


CALL = """
def call(model, x):
    request = pb_utils.InferenceRequest(
        model_name=model, requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", x)])
    response = request.exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()

"""


def calling(expression: str) -> str:
    """A model that answers with the array, computed of its input `x` with `call(model, x)`."""
    return CALL + answering(expression)


def all_answer(models: Models, model: str, added: float, count: int = 12) -> None:
    """So many requests at once are each answered with their input plus so much."""
    answers = models.infer_at_once(model, [ONES * number for number in range(count)])
    for number, answer in enumerate(answers):
        assert isinstance(answer, np.ndarray), answer
        np.testing.assert_array_equal(answer, ONES * (number + added))


def test_a_model_and_the_one_it_calls_need_the_same(models: Models) -> None:
    inner = models.load(INNER, limited("same:1:global"))
    outer = models.load(calling(f'call("{inner}", x)'), limited("same:1:global"))
    all_answer(models, outer, 1)
    all_answer(models, inner, 1)


def test_a_chain_of_models_needs_the_same(models: Models) -> None:
    last = models.load(INNER, limited("chain:1:global"))
    middle = models.load(calling(f'call("{last}", x) + 1'), limited("chain:1:global"))
    first = models.load(calling(f'call("{middle}", x) + call("{last}", x)'), limited("chain:1:global"))
    np.testing.assert_array_equal(models.infer(first, ONES), ONES * 5)
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(models.infer_at_once, each, [ONES] * 10) for each in (last, middle)]
        for answer, expected in zip(answers, (2, 3), strict=True):
            for each in answer.result():
                np.testing.assert_array_equal(each, ONES * expected)


def test_the_middle_of_a_chain_needs_nothing(models: Models) -> None:
    last = models.load(INNER, limited("ends:1:global"))
    middle = models.load(calling(f'call("{last}", x)'))
    first = models.load(calling(f'call("{middle}", x)'), limited("ends:1:global"))
    all_answer(models, first, 1)


def test_the_called_model_needs_more_than_its_caller_holds(models: Models) -> None:
    last = models.load(INNER, limited("more:3:global"))
    middle = models.load(calling(f'call("{last}", x)'), limited("more:2:global"))
    first = models.load(calling(f'call("{middle}", x)'), limited("more:1:global", instances=2))
    all_answer(models, first, 1)


def test_two_models_call_models_that_need_what_the_other_holds(models: Models) -> None:
    to_a, to_b = (models.load(INNER, limited(f"cross_{each}:1:global")) for each in "ab")
    a = models.load(calling(f'call("{to_b}", x)'), limited("cross_a:1:global"))
    b = models.load(calling(f'call("{to_a}", x)'), limited("cross_b:1:global"))
    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            answers = [pool.submit(models.infer_at_once, each, [ONES] * 8) for each in (a, b)]
            for answer in answers:
                for each in answer.result():
                    np.testing.assert_array_equal(each, ONES * 2)


def test_instances_that_hold_everything_all_call(models: Models) -> None:
    inner = models.load(INNER, limited("all:2:global"))
    outer = models.load(calling(f'call("{inner}", x)'), limited("all:1:global", instances=2))
    all_answer(models, outer, 1, 30)


def test_several_calls_at_once_from_threads(models: Models) -> None:
    inner = models.load(INNER, limited("threads:1:global"))
    source = CALL + executing(f"""
        from concurrent.futures import ThreadPoolExecutor
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            with ThreadPoolExecutor(4) as pool:
                parts = list(pool.map(lambda _: call("{inner}", x), range(4)))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", sum(parts) - 3 * x)]))
        return responses
    """)
    outer = models.load(source, limited("threads:1:global"))
    all_answer(models, outer, 4)


def test_several_calls_at_once_from_a_coroutine(models: Models) -> None:
    inner = models.load(INNER, limited("coroutine:1:global", instances=2))
    source = f"""
        class TritonPythonModel:
            async def execute(self, requests):
                responses = []
                for request in requests:
                    x = pb_utils.get_input_tensor_by_name(request, "IN")
                    calls = [
                        pb_utils.InferenceRequest(
                            model_name="{inner}", requested_output_names=["OUT"], inputs=[x]).async_exec()
                        for _ in range(4)
                    ]
                    answers = await asyncio.gather(*calls)
                    parts = [pb_utils.get_output_tensor_by_name(each, "OUT").as_numpy() for each in answers]
                    out = pb_utils.Tensor("OUT", sum(parts) - 3 * x.as_numpy())
                    responses.append(pb_utils.InferenceResponse([out]))
                return responses
    """
    outer = models.load(source, limited("coroutine:1:global"))
    all_answer(models, outer, 4)


def test_a_model_calls_an_ensemble_whose_models_need_the_same(models: Models) -> None:
    inner = models.load(INNER, limited("ensemble:1:global"))
    middle = models.load(calling(f'call("{inner}", x)'), limited("ensemble:1:global"))
    steps = "".join(
        f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "IN" value: "{source}" }} '
        f'output_map {{ key: "OUT" value: "{target}" }} }},'
        for model, source, target in ((inner, "IN", "A"), (middle, "A", "B"), (inner, "B", "OUT"))
    )
    chained = models.load_config(
        f'platform: "ensemble" {FLOATS} ensemble_scheduling {{ step [{steps.rstrip(",")}] }}'
    )
    outer = models.load(calling(f'call("{chained}", x)'), limited("ensemble:1:global"))
    all_answer(models, outer, 3)
    all_answer(models, chained, 3)


def test_requests_of_clients_wait_while_a_called_model_runs_on_a_loan(models: Models) -> None:
    """What is lent serves the caller's request alone, also where others came first."""
    inner = models.load(INNER, limited("clients:1:global"))
    outer = models.load(calling(f'call("{inner}", x)'), limited("clients:1:global"))
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(models.infer_at_once, each, [ONES] * 20) for each in (inner, outer)]
        for answer in answers:
            assert len(answer.result()) == 20
            for each in answer.result():
                np.testing.assert_array_equal(each, ONES * 2)


def test_a_decoupled_model_is_called(models: Models) -> None:
    source = """
        class TritonPythonModel:
            def execute(self, requests):
                for request in requests:
                    x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
                    sender = request.get_response_sender()
                    for number in range(3):
                        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x + number)]))
                    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """
    inner = models.load(source, limited("responses:1:global", config=FLOATS + DECOUPLED))
    outer = models.load(
        executing(f"""
            responses = []
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "IN")
                call = pb_utils.InferenceRequest(
                    model_name="{inner}", requested_output_names=["OUT"], inputs=[x])
                parts = [
                    pb_utils.get_output_tensor_by_name(each, "OUT").as_numpy()
                    for each in call.exec(decoupled=True) if each.output_tensors()
                ]
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", sum(parts) - 2 * x.as_numpy())]))
            return responses
        """),
        limited("responses:1:global"),
    )
    all_answer(models, outer, 3)


def test_a_call_that_is_cancelled_leaves_nothing_lent(models: Models, tmp_path: Path) -> None:
    """The client of the caller goes while the called model runs on what the caller holds."""
    gate = tmp_path / "gate"
    inner = models.load(
        executing(f"""
            open("{gate}.began", "w").close()
            while not os.path.exists("{gate}"):
                time.sleep(0.002)
            return [pb_utils.InferenceResponse([pb_utils.get_input_tensor_by_name(each, "IN")]) for each in requests]
        """).replace(
            'pb_utils.get_input_tensor_by_name(each, "IN")', 'pb_utils.Tensor("OUT", np.ones(4, np.float32))'
        ),
        limited("cancelled:1:global"),
    )
    outer = models.load(calling(f'call("{inner}", x)'), limited("cancelled:1:global"))
    other = models.load(INNER, limited("cancelled:1:global"))
    stream = Stream(models)
    stream.send(outer)
    wait_until(Path(f"{gate}.began").exists, "the called model to execute")
    stream.close(cancel=True)
    (pid,) = models.pids(outer)
    kill(pid)
    gate.touch()
    all_answer(models, other, 1)
    np.testing.assert_array_equal(models.infer(outer), ONES)


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 2 }"])
def test_a_model_with_sequences_is_called(models: Models, strategy: str) -> None:
    name = f"sequences_{strategy.split()[0]}"
    inner = models.load(
        answering("x + 1"),
        limited(f"{name}:1:global", config=FLOATS + f"sequence_batching {{ {strategy} }}"),
    )
    outer = models.load(
        executing(f"""
            responses = []
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "IN")
                flags = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
                last = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
                for flags in (flags, 0, last):
                    answer = pb_utils.InferenceRequest(
                        model_name="{inner}", requested_output_names=["OUT"], inputs=[x], correlation_id=os.getpid(),
                        flags=flags).exec()
                    assert not answer.has_error(), answer.error().message()
                    x = pb_utils.Tensor("IN", pb_utils.get_output_tensor_by_name(answer, "OUT").as_numpy())
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x.as_numpy())]))
            return responses
        """),
        limited(f"{name}:1:global"),
    )
    all_answer(models, outer, 3)
