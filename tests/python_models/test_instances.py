"""Models whose number of instances changes: only the difference is initialized or finalized."""

import threading

import numpy as np

from tests.python_models.support import FLOATS, ONES, Models, until

SOURCE = """
class TritonPythonModel:
    def initialize(self, args):
        self.calls = open(os.path.join(args["model_repository"], "..", "..", "calls"), "a", buffering=1)
        self.hold = os.path.join(args["model_repository"], "..", "..", "hold")
        self.name = args["model_instance_name"]
        self.calls.write(f"initialize {self.name}\\n")

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            if x[0] > 1:
                self.calls.write(f"execute {self.name}\\n")
                while os.path.exists(self.hold):
                    time.sleep(0.01)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)]))
        return responses

    def finalize(self):
        self.calls.write(f"finalize {self.name}\\n")
"""
"""Notes the calls of its methods, and executes inputs above 1 for as long as there is a file `hold`."""


class Counted:
    """Such a model."""

    def __init__(self, models: Models, name: str) -> None:
        self._models = models
        self._name = name
        self._log = models.repository.parent / "calls"
        self.hold = models.repository.parent / "hold"

    def load(self, count: int) -> list[str]:
        """Load it with so many instances: what was called meanwhile."""
        self._log.write_text("")
        config = f"{FLOATS}instance_group {{ count: {count} kind: KIND_CPU }}"
        file = self._models.repository / self._name / "config.pbtxt"
        if file.exists():
            file.write_text(f'backend: "python"\n{config}')
        else:
            self._models.write(SOURCE, config, self._name)
        self._models.http.load_model(self._name)
        return self.calls

    @property
    def calls(self) -> list[str]:
        """What was called since the last load began."""
        return sorted(self._log.read_text().splitlines())

    @property
    def processes(self) -> set[int]:
        """Its worker processes."""
        return set(self._models.pids(self._name))


def test_only_the_difference_in_instances_is_initialized_or_finalized(models: Models) -> None:
    model = Counted(models, "few")
    assert model.load(3) == [f"initialize few_0_{n}" for n in range(3)]
    three = model.processes
    np.testing.assert_array_equal(models.infer("few"), ONES)
    assert model.load(4) == ["initialize few_0_3"]
    assert len(model.processes) == 4
    assert three < model.processes
    assert models.statistics("few")["inference_count"] == 1, "it was not loaded again"
    model.load(2)
    until(lambda: model.calls == ["finalize few_0_2", "finalize few_0_3"], "two are finalized")
    until(lambda: len(model.processes) == 2, "two processes are left")
    assert model.processes < three
    np.testing.assert_array_equal(models.infer("few"), ONES)
    models.http.unload_model("few")
    until(lambda: not model.processes, "no process is left")


def test_requests_under_way_finish_on_instances_that_leave(models: Models) -> None:
    model = Counted(models, "less")
    model.load(3)
    model.hold.write_text("")
    outcomes: list[object] = []
    thread = threading.Thread(target=lambda: outcomes.extend(models.infer_at_once("less", [2 * ONES] * 3)))
    thread.start()
    until(lambda: sum(call.startswith("execute") for call in model.calls) == 3, "three executions began")
    assert model.load(1) == []
    assert len(model.processes) == 3
    model.hold.unlink()
    thread.join(20)
    np.testing.assert_array_equal(np.array(outcomes), [2 * ONES] * 3)
    until(lambda: model.calls == ["finalize less_0_1", "finalize less_0_2"], "two are finalized")
    until(lambda: len(model.processes) == 1, "one process is left")
    np.testing.assert_array_equal(models.infer("less"), ONES)
