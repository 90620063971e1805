"""Refuse tests that sleep, tests that cannot fail, and tasks that are not started by `core/tasks.py`.

* `time.sleep` and `asyncio.sleep` (but of 0) belong in `tests/support/waiting.py`. Elsewhere a line needs a comment
  that says what its sleep stands for: `# sleeps: the work of a slow model`.
* A test has to assert: itself, or by a function of the tests that it calls.
* Only `core/tasks.py` calls `create_task` and `ensure_future`, as it logs or returns each failure.

    python scripts/check_code.py [FILE ...]
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_WAITING = "tests/support/waiting.py"
_TASKS = "src/halimede/core/tasks.py"
_MAKES_TASK = re.compile(r"\b(create_task|ensure_future)\(")
_REASON = re.compile(r"# sleeps: \S")
_FAILING = re.compile(r"^(raises|warns|fail|assert_\w+|expect\w*|to_(be|have|contain)_\w+)$")
"""Names of pytest, numpy.testing, unittest.mock and Playwright that raise an error if something is wrong."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def main(files: Sequence[str]) -> int:
    """Print the faults of these files, of all tests if there are none; 1 if there are any."""
    trees = {path: ast.parse(path.read_text()) for path in sorted((_ROOT / "tests").rglob("*.py"))}
    asserting = asserting_functions(trees.values())
    package = sorted((_ROOT / "src").rglob("*.py"))
    wanted = {Path(file).resolve() for file in files} or {*trees, *package}
    found = [
        *((path, fault) for path in package if path in wanted for fault in raw_tasks(path)),
        *(
            (path, fault)
            for path, tree in trees.items()
            if path in wanted
            for fault in sorted([*sleeps(path, tree), *empty_tests(path, tree, asserting)])
        ),
    ]
    faults = [f"{path.relative_to(_ROOT)}:{line}: {fault}" for path, (line, fault) in found]
    print(*faults, sep="\n", end="\n" if faults else "")  # noqa: T201 - what this program is for
    return 1 if faults else 0


def sleeps(path: Path, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The lines that sleep without a reason."""
    if path == _ROOT / _WAITING:
        return
    lines = path.read_text().splitlines()
    for node in ast.walk(tree):
        if not (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sleep"
        ):
            continue
        if ast.unparse(node.func) not in ("time.sleep", "asyncio.sleep"):
            continue
        gives_way = ast.unparse(node) == "asyncio.sleep(0)"
        if not gives_way and not any(
            _REASON.search(line) for line in lines[node.lineno - 1 : node.end_lineno]
        ):
            yield node.lineno, f"wait for a condition with {_WAITING}, or say `# sleeps: REASON`"


def raw_tasks(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of the package that make a task by themselves."""
    if path == _ROOT / _TASKS:
        return
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if _MAKES_TASK.search(line):
            yield number, f"start tasks with {_TASKS}, which logs or returns their failures"


def empty_tests(path: Path, tree: ast.AST, asserting: set[str]) -> Iterator[tuple[int, str]]:
    """The tests that nothing can fail but an error."""
    if not path.name.startswith("test_"):
        return
    for node in ast.walk(tree):
        if isinstance(node, Function) and node.name.startswith("test_") and not _asserts(node, asserting):
            yield node.lineno, f"{node.name} asserts nothing"


def asserting_functions(trees: Iterable[ast.AST]) -> set[str]:
    """The names of functions that assert; not those that set something up for a `with` block or as a fixture."""
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, Function)]
    return {each.name for each in functions if _asserts(each, set()) and not each.decorator_list}


def _asserts(function: Function, asserting: set[str]) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if _FAILING.match(name) or name in asserting:
                return True
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
