"""Halimede: a model server for Triton model repositories, in Python.

What programs use of it is imported when it is first asked for, so that `import halimede` costs next to nothing;
`__init__.pyi` lists it for type checkers.
"""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "BackgroundServer": "halimede.api.background",
    "DeclarationError": "halimede.functions.declaration",
    "HalimedeError": "halimede.core.errors",
    "InferenceResponse": "halimede.api.responses",
    "Model": "halimede.api.models",
    "Server": "halimede.api.server",
    "Tensor": "halimede.functions.declaration",
    "model": "halimede.functions.declaration",
    "serve": "halimede.api.serving",
    "serve_in_background": "halimede.api.serving",
}
"""Name → the module that has it."""


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'halimede' has no attribute '{name}'")
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})


def _import_worker_package() -> None:
    """Import `halimede_worker`, which the server shares with its workers, from the directory `worker_site`.

    That directory is on the path of workers only, whatever interpreter they have: what else lies there, such as
    `triton_python_backend_utils`, is for models and not for other programs of the environment.
    """
    name = "halimede_worker"
    if name in sys.modules:  # in a worker
        return
    directory = Path(__file__).with_name("worker_site") / name
    spec = spec_from_file_location(
        name, directory / "__init__.py", submodule_search_locations=[str(directory)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)


_import_worker_package()
