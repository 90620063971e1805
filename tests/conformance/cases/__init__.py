"""The cases, a module for each subject with `CASES`."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module

from tests.conformance.case import Case


def every_case() -> Iterator[tuple[str, Case]]:
    """Each case with the name of its module, in the modules' alphabetical order."""
    for module in pkgutil.iter_modules(__path__):
        for case in import_module(f"{__name__}.{module.name}").CASES:
            yield module.name, case
