"""Halimede: a model server for Triton model repositories, in Python."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

__version__ = "0.1.0"


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
