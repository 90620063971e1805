"""What runs in the workers has to run in any environment that a model brings."""

import ast
import sys
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "src/halimede/worker_site"
FILES = sorted(path.relative_to(SITE) for path in SITE.rglob("*.py"))
OWN = {file.parts[0].removesuffix(".py") for file in FILES}


def test_there_are_files_to_check() -> None:
    assert Path("halimede_worker/messages/wire.py") in FILES


@pytest.mark.parametrize("file", FILES, ids=str)
def test_the_worker_parses_on_python_3_8_and_imports_only_numpy_and_the_standard_library(file: Path) -> None:
    tree = ast.parse((SITE / file).read_text(), file.name, feature_version=(3, 8))
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported.add((node.module or "").partition(".")[0])
    assert imported <= sys.stdlib_module_names | OWN | {"numpy"}
