"""Write the serialized form of a pipeline that is a Python module: `python dali_serialize.py MODULE TARGET`.

Runs in a process of its own, since a model's module is code that may do anything. The module has one pipeline that is
marked with `nvidia.dali.plugin.triton.autoserialize`. What is wrong with it goes to standard output.
"""

import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


def load(path: Path) -> ModuleType:
    """The module, which finds its neighbours as modules too."""
    sys.path.insert(0, str(path.parent))
    spec = spec_from_file_location("autoserialize_mod", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def serialize(module: ModuleType) -> bytes:
    """The module's pipeline, which is placed on no GPU: where it runs is said when it is loaded."""
    marked = {value for value in vars(module).values() if getattr(value, "_is_autoserialize", False)}
    if len(marked) != 1:
        names = ", ".join(sorted(pipeline.__name__ for pipeline in marked)) or "none"
        raise ValueError(
            f"it must have exactly one function with the decorators @autoserialize and @pipeline_def, found: {names}"
        )
    data: bytes = marked.pop()(device_id=None).serialize()
    return data


def main() -> int:
    """0 if the target is written."""
    try:
        Path(sys.argv[2]).write_bytes(serialize(load(Path(sys.argv[1]))))
    except Exception as error:
        traceback.print_exc()
        sys.stdout.write("".join(traceback.format_exception_only(error)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
