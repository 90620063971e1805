"""Models that cannot be loaded: who loads them reads why, and the server goes on."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.python_models.support import FLOATS, IMPORTS, Models, answering, processes
from tests.support.waiting import wait_until

EXECUTE = "    def execute(self, requests): return [pb_utils.InferenceResponse([]) for _ in requests]\n"


def failure(models: Models, source: str, config: str = FLOATS) -> str:
    """The reason in the error to a load."""
    message = models.load_error(source, config)
    head, tail = "version 1 is at UNAVAILABLE state: Internal: ", ";\n"
    assert message.startswith("load failed for model 'm")
    assert message.endswith(tail)
    return message.partition(head)[2].removesuffix(tail)


def initializing(body: str) -> str:
    return f"class TritonPythonModel:\n{EXECUTE}    def initialize(self, args):\n        {body}\n"


def completing(body: str) -> str:
    head = f"class TritonPythonModel:\n{EXECUTE}    @staticmethod\n"
    return f"{head}    def auto_complete_config(config):\n        {body.strip()}\n"


def test_import_error_is_told_with_where_it_happened(models: Models) -> None:
    message = failure(models, "import no_such_module")
    path = models.repository / models.last_name / "1" / "model.py"
    assert message.startswith(
        f"ModuleNotFoundError: No module named 'no_such_module'\n\nAt:\n  {path}(2): <module>\n  <frozen importlib"
    )
    assert message.rstrip().endswith(": _find_and_load")


def test_syntax_error_is_told_with_its_line_and_no_traceback(models: Models) -> None:
    name = models.write("")
    (models.repository / name / "1" / "model.py").write_text("def f()\n")
    with pytest.raises(InferenceServerException) as caught:
        models.http.load_model(name)
    assert "Internal: SyntaxError: expected ':' (model.py, line 1);\n" in str(caught.value.message())


def test_exception_in_initialize_is_told_as_pybind11_writes_it(models: Models) -> None:
    message = failure(models, initializing("raise pb_utils.TritonModelException('init bad')"))
    path = models.repository / models.last_name / "1" / "model.py"
    assert message == f"TritonModelException: init bad\n\nAt:\n  {path}(5): initialize\n"


def test_exception_without_a_text_is_told(models: Models) -> None:
    assert failure(models, initializing("raise RuntimeError")).startswith(
        "RuntimeError: <EMPTY MESSAGE>\n\nAt:\n"
    )


def test_exception_in_the_constructor_is_told(models: Models) -> None:
    source = (
        f"class TritonPythonModel:\n{EXECUTE}    def __init__(self):\n        raise OSError('no weights')\n"
    )
    assert failure(models, source).startswith("OSError: no weights\n\nAt:\n")


@pytest.mark.parametrize("leaving", ["sys.exit(4)", "raise KeyboardInterrupt", "raise GeneratorExit"])
def test_leaving_initialize_in_an_unusual_way_is_an_error(models: Models, leaving: str) -> None:
    assert "At:\n" in failure(models, initializing(leaving))


def test_exception_in_auto_complete_config_is_told(models: Models) -> None:
    source = completing("config.add_input({'name': 'A', 'shape': [1]})")
    assert failure(models, source).startswith(
        "ValueError: input 'A' in auto-complete-config function for model "
        f"'{models.last_name}' contains property other than 'name', 'data_type', 'dims' and 'optional'.\n\nAt:\n"
    )


@pytest.mark.parametrize("returned", ["None", "{}", "config.as_dict()", "'config'"])
def test_auto_complete_config_must_return_a_model_config(models: Models, returned: str) -> None:
    message = failure(models, completing(f"return {returned}"))
    assert message == (
        f"auto_complete_config function in model '{models.last_name}' must return a valid pb.ModelConfig object."
    )


@pytest.mark.parametrize(
    "change",
    [
        "config.as_dict()['max_batch_size'] = 'many'",
        "config.as_dict()['nope'] = 1",
        "config.as_dict()['input'] = 5",
        "config.add_input({'name': 'A', 'data_type': 'FP32', 'dims': [1]})",
    ],
)
def test_auto_completed_config_that_is_none_is_ignored_with_an_error_in_the_log(
    models: Models, change: str
) -> None:
    name = models.load(completing(f"{change}; return config"))
    assert [entry["name"] for entry in models.http.get_model_config(name)["input"]] == ["IN"]
    assert f"auto_complete_config function in model '{name}' made a configuration that is none" in (
        models.server.log
    )


@pytest.mark.parametrize("value", ["None", "'x'", "[1]"])
def test_auto_completed_config_that_is_no_object_is_an_error(models: Models, value: str) -> None:
    message = failure(models, completing(f"config._model_config = {value}; return config"))
    assert message.startswith("attempt to access non-existing object member 'default_model_filename'")


def test_auto_complete_config_changes_only_what_it_may(models: Models) -> None:
    name = models.load(
        completing("""
        values = config.as_dict()
        values["name"] = "other"
        values["instance_group"] = [{"count": 2}]
        values["parameters"] = {"k": {"string_value": "v"}}
        values["dynamic_batching"] = {"max_queue_delay_microseconds": 7}
        values.pop("model_transaction_policy", None)
        config.set_max_batch_size(4)
        return config
        """),
        FLOATS + "model_transaction_policy { decoupled: true }",
    )
    config = models.http.get_model_config(name)
    assert (config["name"], config["max_batch_size"], config["parameters"]) == (name, 4, {})
    assert [group["count"] for group in config["instance_group"]] == [1]
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 7
    assert config["model_transaction_policy"] == {"decoupled": True}


def test_preferred_sizes_are_compared_with_the_completed_batch_size(models: Models) -> None:
    completed = completing("config.set_max_batch_size(4); return config")
    name = models.load(completed, FLOATS + "dynamic_batching { preferred_batch_size: [ 2 ] }")
    config = models.http.get_model_config(name)
    assert (config["max_batch_size"], config["dynamic_batching"]["preferred_batch_size"]) == (4, [2])
    models.write(completed, FLOATS + "dynamic_batching { preferred_batch_size: [ 5 ] }")
    with pytest.raises(InferenceServerException) as caught:
        models.http.load_model(models.last_name)
    assert "dynamic batching preferred size must be <= max batch size" in str(caught.value.message())


def test_batches_by_tokens_need_only_the_batching_that_is_completed(models: Models) -> None:
    tokens = 'parameters { key: "dynamic_batching.max_tokens" value { string_value: "64" } }'
    batched = "config.set_max_batch_size(4); config.set_dynamic_batching(); return config"
    config = models.http.get_model_config(models.load(completing(batched), FLOATS + tokens))
    assert (config["max_batch_size"], "dynamic_batching" in config) == (4, True)
    models.write(completing("config.set_max_batch_size(4); return config"), FLOATS + tokens)
    with pytest.raises(InferenceServerException, match=r"has no effect without dynamic_batching \{ \}"):
        models.http.load_model(models.last_name)


def test_auto_complete_config_cannot_change_a_scheduler_that_is_set(models: Models) -> None:
    name = models.load(
        completing("""
        config.as_dict()["dynamic_batching"] = {"max_queue_delay_microseconds": 7}
        return config
        """),
        FLOATS + "max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 3 }",
    )
    assert models.http.get_model_config(name)["dynamic_batching"]["max_queue_delay_microseconds"] == 3


def test_auto_completed_config_that_cannot_be_json_is_an_error(models: Models) -> None:
    assert "TypeError" in failure(models, completing("config.as_dict()['x'] = np.ones(2); return config"))


def test_model_without_a_configuration_is_completed_by_its_code(models: Models) -> None:
    source = answering("x + 1") + COMPLETION
    name = models.write(source)
    (models.repository / name / "config.pbtxt").unlink()
    models.http.load_model(name)
    config = models.http.get_model_config(name)
    assert config["max_batch_size"] == 4
    np.testing.assert_array_equal(models.infer(name, np.zeros((1, 3), np.float32)), np.ones((1, 3)))


COMPLETION = """
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(4)
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
        return config
"""


def test_missing_class_is_told(models: Models) -> None:
    message = failure(models, "class Model:\n    pass\n")
    assert message.startswith("AttributeError: module '1.model' has no attribute 'TritonPythonModel'")


def test_missing_execute_is_told_at_load(models: Models) -> None:
    message = failure(models, "class TritonPythonModel:\n    pass\n")
    path = models.repository / models.last_name / "1" / "model.py"
    assert message == f"Python model {path} does not implement `execute` method."


def test_process_that_exits_in_initialize_is_told_with_its_status(models: Models) -> None:
    assert failure(models, initializing("os._exit(7)")) == (
        f"Stub process '{models.last_name}_0' is not healthy. It exited with status 7"
    )


def test_process_that_is_killed_in_initialize_is_told_with_its_signal(models: Models) -> None:
    message = failure(models, initializing("import signal; os.kill(os.getpid(), signal.SIGSEGV)"))
    assert message.startswith(f"Stub process '{models.last_name}_0' is not healthy. It crashed with SIGSEGV")


def test_process_that_exits_in_auto_complete_config_is_told(models: Models) -> None:
    assert failure(models, completing("os._exit(7)")).endswith("is not healthy. It exited with status 7")


def test_process_that_exits_while_it_is_imported_is_told(models: Models) -> None:
    assert failure(models, "os._exit(9)").endswith("is not healthy. It exited with status 9")


def test_missing_model_file_is_told_at_once(models: Models) -> None:
    name = models.write("")
    file = models.repository / name / "1" / "model.py"
    file.unlink()
    with pytest.raises(InferenceServerException) as caught:
        models.http.load_model(name)
    assert f"Python model file not found in '{file}'" in str(caught.value.message())


def test_model_file_with_another_ending_is_told(models: Models) -> None:
    message = models.load_error("", FLOATS + 'default_model_filename: "model.txt"')
    assert "Internal: Model name must end with '.py'. Model name is \"model.txt\"." in message


def test_model_file_of_another_name_is_used(models: Models) -> None:
    name = models.write("", FLOATS + 'default_model_filename: "other.py"')
    (models.repository / name / "1" / "other.py").write_text(IMPORTS + answering("x * 3"))
    models.http.load_model(name)
    assert models.infer(name).tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize("name", ["net (1)", "it's", "a;b", "a&b $c", "[x]{y}", "100~"])
def test_names_may_have_any_characters(models: Models, name: str) -> None:
    """No shell sees them."""
    groups = f'instance_group [{{ name: "{name}" kind: KIND_CPU }}]'
    models.load(answering("x * 3"), FLOATS + groups, name=name)
    assert models.infer(name).tolist() == [3, 3, 3, 3]


def test_wrong_value_of_a_parameter_is_told(models: Models) -> None:
    config = FLOATS + 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "maybe" } }'
    message = models.load_error(answering("x"), config)
    assert "Unsupported: Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: maybe';\n" in message


def test_one_of_several_instances_that_fails_fails_the_load_and_leaves_no_process(models: Models) -> None:
    before = set(processes(models.server.process.pid))
    source = initializing("if args['model_instance_name'].endswith('_2'): raise ValueError('third')")
    message = failure(models, source, FLOATS + "instance_group [{ count: 3 kind: KIND_CPU }]")
    assert message.startswith("ValueError: third")
    wait_until(lambda: set(processes(models.server.process.pid)) <= before, "the processes to be gone")


def test_model_that_failed_can_be_mended_and_loaded(models: Models) -> None:
    name = models.write("import no_such_module")
    with pytest.raises(InferenceServerException):
        models.http.load_model(name)
    assert not models.ready(name)
    models.write(answering("x + 1"), name=name)
    models.http.load_model(name)
    assert models.infer(name).tolist() == [2, 2, 2, 2]


def test_reload_that_fails_leaves_the_old_version_serving(models: Models) -> None:
    name = models.load(answering("x + 1"))
    models.write(initializing("raise ValueError('worse')"), name=name)
    with pytest.raises(InferenceServerException, match="worse"):
        models.http.load_model(name)
    assert models.infer(name).tolist() == [2, 2, 2, 2]


def test_arguments_of_initialize_are_seven_texts(models: Models) -> None:
    name = models.load(
        """
        class TritonPythonModel:
            def initialize(self, args):
                self.args = args
            def execute(self, requests):
                text = json.dumps([self.args, __name__, sys.argv, os.getcwd(),
                                   threading.current_thread() is threading.main_thread()])
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([text], object))])]
        """,
        FLOATS.replace("FP32", "STRING"),
    )
    text = models.infer(name, np.array([b""], object))[0]
    args, module, argv, directory, main_thread = json.loads(text)
    config = json.loads(args.pop("model_config"))
    assert args == {
        "model_instance_kind": "CPU",
        "model_instance_name": f"{name}_0",
        "model_instance_device_id": "0",
        "model_repository": str(models.repository / name),
        "model_version": "1",
        "model_name": name,
    }
    assert config["name"] == name
    assert config["input"][0]["data_type"] == "TYPE_STRING"
    assert (module, argv, directory, main_thread) == ("1.model", [""], str(Path.cwd()), True)


def test_modules_beside_the_model_can_be_imported(models: Models) -> None:
    name = models.write(
        "from . import sibling as relative; import sibling; " + "\n" + answering("x * sibling.FACTOR")
    )
    (models.repository / name / "1" / "sibling.py").write_text("FACTOR = 5\n")
    models.http.load_model(name)
    assert models.infer(name).tolist() == [5, 5, 5, 5]


@pytest.fixture
def _no_more_than_before(models: Models) -> Iterator[None]:
    before = len(processes(models.server.process.pid))
    yield
    wait_until(lambda: len(processes(models.server.process.pid)) <= before, "the processes to be gone")


@pytest.mark.usefixtures("_no_more_than_before")
def test_unloaded_model_leaves_no_process(models: Models) -> None:
    name = models.load(answering("x"), FLOATS + "instance_group [{ count: 2 kind: KIND_CPU }]")
    assert len(models.pids(name)) == 2
    models.http.unload_model(name)
