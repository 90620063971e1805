"""The modules of the worker import one way, those for type checkers and inside functions included.

The contracts of the rest are import-linter's, which does not see the worker: it is a package of its own, for other
interpreters.
"""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import halimede_worker

PACKAGE = Path(halimede_worker.__file__).parent


def imports_of(path: Path, modules: set[str]) -> set[str]:
    """The modules of the package that one of them imports, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            found |= {node.module} if node.module else {alias.name for alias in node.names}
    return found & modules


def test_no_module_of_the_worker_imports_one_that_imports_it() -> None:
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    imports = {name: imports_of(PACKAGE / f"{name}.py", modules) for name in modules}

    order = list(TopologicalSorter(imports).static_order())  # raises CycleError where there is a circle
    assert order.index("bls") < order.index("requests")
