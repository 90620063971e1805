"""The modules `triton_python_backend_utils` and `c_python_backend_utils` of one instance in the server's process.

They are those of worker processes but for what belongs to an instance: calls, metrics, logs, and where the model lies.
"""

import sys
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any, Final

import halimede
from halimede.workers.in_server.calls import Calls
from halimede.workers.in_server.runtime import ServerRuntime
from halimede_worker.calls.control import ModelControl
from halimede_worker.calls.logger import Logger
from halimede_worker.calls.metrics import MetricFamily
from halimede_worker.requests import _ASYNC_EXEC, _EXEC, InferenceRequest

_IMPORTING: Final = Lock()
_DIRECTORY: Final = Path(halimede.__file__).with_name("worker_site")


def modules_of(runtime: ServerRuntime) -> Mapping[str, ModuleType]:
    """The modules of an instance, by name."""
    calls, control = Calls(runtime), ModelControl(runtime)

    def execute(self: InferenceRequest, decoupled: bool = False) -> Any:
        return calls.execute(self, _EXEC.truth("decoupled", decoupled))

    def execute_async(self: InferenceRequest, decoupled: bool = False) -> Any:
        return calls.execute_async(self, _ASYNC_EXEC.truth("decoupled", decoupled))

    execute.__doc__, execute_async.__doc__ = (
        InferenceRequest.exec.__doc__,
        InferenceRequest.async_exec.__doc__,
    )
    own = {
        "InferenceRequest": _with_runtime(InferenceRequest, runtime, exec=execute, async_exec=execute_async),
        "Logger": _with_runtime(Logger, runtime),
        "MetricFamily": _with_runtime(MetricFamily, runtime),
        "get_model_dir": lambda: runtime.version_directory,
        "is_model_ready": control.is_model_ready,
        "load_model": control.load_model,
        "unload_model": control.unload_model,
    }
    return {
        name: _copy(_shared(name), own) for name in ("triton_python_backend_utils", "c_python_backend_utils")
    }


def _with_runtime(base: type, runtime: ServerRuntime, **methods: Any) -> type:
    """The class as the instance has it."""
    return type(
        base.__name__,
        (base,),
        {
            "__slots__": (),
            "__module__": base.__module__,
            "__doc__": base.__doc__,
            "_runtime": runtime,
            **methods,
        },
    )


def _copy(module: ModuleType, own: Mapping[str, Any]) -> ModuleType:
    copy = ModuleType(module.__name__, module.__doc__)
    copy.__dict__.update(vars(module))
    copy.__dict__.update({name: value for name, value in own.items() if name in vars(module)})
    return copy


def _shared(name: str) -> ModuleType:
    """The module of that name that all have, which libraries get that import it."""
    with _IMPORTING:
        module = sys.modules.get(name)
        if module is None:
            spec = spec_from_file_location(name, _DIRECTORY / f"{name}.py")
            assert spec is not None
            assert spec.loader is not None
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules[name] = module
    return module
