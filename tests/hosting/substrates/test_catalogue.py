"""Instance types."""

from pathlib import Path

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.substrates.base import Resources
from halimede.hosting.substrates.catalogue import Catalogue, CatalogueError, read_catalogue, this_machine

GIB = 1 << 30
MACHINE = Resources(8, 20 * GIB, 1)


@pytest.mark.parametrize(
    ("name", "resources"),
    [
        ("ml.local.cpu", Resources(1, 20 * GIB, 0)),
        ("ml.local.gpu", Resources(1, 20 * GIB, 1)),
        ("ml.m5.large", Resources(2, 8 * GIB, 0)),
        ("ml.g4dn.xlarge", Resources(4, 16 * GIB, 1)),
        # no more than the machine has
        ("ml.g4dn.12xlarge", Resources(8, 20 * GIB, 1)),
        ("ml.p3.2xlarge", Resources(8, 20 * GIB, 1)),
    ],
)
def test_a_type_gives_what_it_has_and_what_the_machine_has(name: str, resources: Resources) -> None:
    assert Catalogue(MACHINE).resources(name) == resources


def test_a_machine_without_gpus_gives_none() -> None:
    catalogue = Catalogue(Resources(2, 4 * GIB))
    assert catalogue.resources("ml.g5.xlarge").gpus == 0
    assert catalogue.resources("ml.local.gpu").gpus == 0


def test_types_of_a_file_come_on_top(tmp_path: Path) -> None:
    path = tmp_path / "types.toml"
    path.write_text(
        '["ml.my.large"]\ncpus = 0.5\nmemory_gib = 1.5\ngpus = 1\n["ml.m5.large"]\ncpus = 1\nmemory_gib = 1\n'
    )
    catalogue = Catalogue(MACHINE, read_catalogue(path))
    assert catalogue.resources("ml.my.large") == Resources(0.5, 3 * GIB // 2, 1)
    assert catalogue.resources("ml.m5.large") == Resources(1, GIB, 0)
    assert "ml.my.large" in catalogue.names


def test_an_unknown_type_is_refused_with_what_there_is() -> None:
    with pytest.raises(ApiError, match=r"no instance type 'ml.x'.*ml.local.cpu.*--catalogue") as raised:
        Catalogue(MACHINE).resources("ml.x")
    assert raised.value.code == "ValidationException"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "cannot read the catalogue"),
        ('["my.large"]\ncpus = 1\nmemory_gib = 1', "begins with 'ml.'"),
        ('"ml.a" = 3', "expected a table with cpus, memory_gib, gpus"),
        ('["ml.a"]\ncpus = 1\nmemory_gib = 1\ndisk = 1', "unknown field 'disk'"),
        ('["ml.a"]\ncpus = "1"\nmemory_gib = 1', "'cpus' must be a number of at least 0, got '1'"),
        ('["ml.a"]\ncpus = true\nmemory_gib = 1', "'cpus' must be a number"),
        ('["ml.a"]\ncpus = -1\nmemory_gib = 1', "'cpus' must be a number"),
        ('["ml.a"]\ncpus = 1\nmemory_gib = nan', "'memory_gib' must be a number"),
        ('["ml.a"]\ncpus = inf\nmemory_gib = 1', "'cpus' must be a number"),
        ('["ml.a"]\ncpus = 1\nmemory_gib = 1\ngpus = 0.5', "'gpus' must be a number"),
        ('["ml.a"]\ncpus = 1', "'memory_gib' is missing"),
        ('["ml.a"]\nmemory_gib = 1', "'cpus' is missing"),
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "types.toml"
    path.write_text(text)
    with pytest.raises(CatalogueError, match=message) as raised:
        read_catalogue(path)
    assert str(path) in str(raised.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="No such file"):
        read_catalogue(tmp_path / "missing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(CatalogueError, match="cannot read the catalogue"):
        read_catalogue(tmp_path / "binary.toml")


def test_this_machine_has_processors_and_memory() -> None:
    machine = this_machine(3)
    assert machine.cpus >= 1
    assert machine.memory_bytes > 1 << 26
    assert machine.gpus == 3
