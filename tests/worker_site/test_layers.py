"""The modules of the worker import one way, those for type checkers and inside functions included; so do its packages.

The contracts of the rest are import-linter's, which does not see the worker: it is a package of its own, for other
interpreters.
"""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import halimede_worker

PACKAGE = Path(halimede_worker.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if path.name != "__init__.py"
}


def imports_of(module: str) -> Iterator[str]:
    """The modules of the package that one of them imports, wherever it does."""
    path = PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            above = module.split(".")[: -node.level]
            source = ".".join([*above, *filter(None, [node.module])])
            if source in MODULES:
                yield source
            else:
                yield from (".".join(filter(None, [source, alias.name])) for alias in node.names)


def test_no_module_of_the_worker_imports_one_that_imports_it() -> None:
    imports = {module: set(imports_of(module)) for module in MODULES}

    assert set().union(*imports.values()) <= MODULES
    order = list(TopologicalSorter(imports).static_order())  # raises CycleError where there is a circle
    assert order.index("calls.bls") < order.index("requests")


def test_no_package_of_the_worker_imports_a_module_or_package_that_imports_it() -> None:
    imports: dict[str, set[str]] = {}
    for module in MODULES:
        sibling = module.partition(".")[0]
        imported = {each.partition(".")[0] for each in imports_of(module)}
        imports.setdefault(sibling, set()).update(imported - {sibling})

    order = list(TopologicalSorter(imports).static_order())
    assert order.index("messages") < order.index("tensors") < order.index("calls") < order.index("main")
