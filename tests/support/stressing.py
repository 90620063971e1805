"""A plugin of pytest for `make stress`: tests run several times, in an order by chance.

python -m pytest -p tests.support.stressing --times 10 --order SEED
"""

import random
from collections import defaultdict

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say how often, and in which order."""
    parser.addoption("--times", type=int, default=1, help="how often each test runs")
    parser.addoption(
        "--order", type=int, default=0, help="the seed of the order of files, and of tests in them"
    )


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make so many tests of one."""
    metafunc.fixturenames.append("_repetition")
    times = range(metafunc.config.getoption("--times"))
    metafunc.parametrize("_repetition", times, indirect=True, ids=[f"#{number}" for number in times])


@pytest.fixture
def _repetition(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle files, and the tests in each; what a module's fixtures are parametrised with keeps its order."""
    chance = random.Random(config.getoption("--order"))
    files: dict[str, dict[object, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        shared = getattr(item, "callspec", None)
        scopes = (
            {name: value for name, value in shared.params.items() if _is_shared(item, name)} if shared else {}
        )
        files[str(item.path)][repr(scopes)].append(item)
    groups = list(files.values())
    chance.shuffle(groups)
    items[:] = [
        item for group in groups for tests in group.values() for item in chance.sample(tests, len(tests))
    ]


def _is_shared(item: pytest.Item, name: str) -> bool:
    definitions = item._fixtureinfo.name2fixturedefs.get(name, ())  # type: ignore[attr-defined]  # noqa: SLF001 - pytest has no other way
    return any(definition.scope != "function" for definition in definitions)
