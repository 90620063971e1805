"""Batches that an instance was sent, and that are taken back before it has begun them."""

import threading
from typing import Any

import numpy as np

from tests.python_models.support import FLOATS, Models, answering
from tests.support.stopping import go_on, stop
from tests.support.waiting import wait_until

SOURCE = """
class TritonPythonModel:
    def initialize(self, args):
        self.directory = args["model_repository"]
        self.calls = open(os.path.join(self.directory, "calls"), "a", buffering=1)

    def execute(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy()
        if x[0]:
            self.calls.write(f"{os.getpid()}\\n")
            while os.path.exists(os.path.join(self.directory, f"hold{int(x[0])}")):
                time.sleep(0.01)
        if x[0] == 1:
            pb_utils.InferenceRequest(
                model_name="CALLEE", requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", x)]
            ).exec()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)])]
"""
"""Holds inputs above 0 for as long as there is such a file, and then calls another model for a 1."""


def number(value: float) -> np.ndarray:
    return np.full(1, value, np.float32)


def test_an_instance_whose_batch_was_taken_back_gets_others(models: Models) -> None:
    callee = models.load(answering("x"))
    name = models.load(
        SOURCE.replace("CALLEE", callee), FLOATS + "instance_group [{ count: 2 kind: KIND_CPU }]"
    )
    directory = models.repository / name
    pids = models.pids(name)
    holds = [directory / "hold1", directory / "hold2"]
    for hold in holds:
        hold.write_text("")
    outcomes: list[Any] = []

    def infer(*values: float) -> threading.Thread:
        def work() -> None:
            outcomes.extend(models.infer_at_once(name, [number(value) for value in values]))

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def begun() -> list[str]:
        file = directory / "calls"
        return file.read_text().splitlines() if file.exists() else []

    caller = infer(1)
    wait_until(lambda: len(begun()) == 1, "the execution that will call")
    [stopped] = set(pids) - {int(begun()[0])}
    stop(stopped)
    try:
        waiting = infer(0)
        wait_until(lambda: _executing(models, name) == 2, "a batch for the instance that is stopped")
        holds[0].unlink()
        caller.join(60)
        waiting.join(60)  # the other instance has run it
        assert sorted(value.tolist() for value in outcomes) == [[0], [1]]
    finally:
        go_on(stopped)
    both = infer(2, 2)
    wait_until(lambda: len(set(begun()[1:])) == 2, "executions on both instances")
    holds[1].unlink()
    both.join(60)


def _executing(models: Models, name: str) -> int:
    """How many of the model's requests have been sent to an instance."""
    text = models.server.get("/metrics", models.server.metrics)[1].decode()
    (line,) = [
        line
        for line in text.splitlines()
        if line.startswith(f'halimede_inference_executing_request_count{{model="{name}"')
    ]
    return int(line.split()[-1])
