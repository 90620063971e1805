"""Instance types."""

from pathlib import Path

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel

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


HUGE = Resources(1024, 1 << 50, 64)
SAGEMAKER_TYPES = (
    ServiceModel(Loader().load_service_model("sagemaker", "service-2"))
    .shape_for("ProductionVariantInstanceType")
    .metadata["enum"]
)


def test_every_type_that_boto3_names_is_known_after_the_own_ones() -> None:
    names = Catalogue(HUGE).names
    assert names[:2] == ["ml.local.cpu", "ml.local.gpu"]
    assert len(SAGEMAKER_TYPES) > 250
    assert set(SAGEMAKER_TYPES) <= set(names)


@pytest.mark.parametrize("name", SAGEMAKER_TYPES)
def test_every_type_has_sensible_resources(name: str) -> None:
    resources = Catalogue(HUGE).resources(name)
    assert 1 <= resources.cpus <= 192
    assert 1.5 <= resources.memory_bytes / GIB / resources.cpus <= 22
    has_gpus = name.startswith(("ml.g", "ml.p"))
    assert (1 <= resources.gpus <= 16) if has_gpus else resources.gpus == 0


@pytest.mark.parametrize(
    ("name", "cpus", "memory_gib", "gpus"),
    [
        ("ml.t2.medium", 2, 4, 0),
        ("ml.m4.10xlarge", 40, 160, 0),
        ("ml.c4.large", 2, 3.75, 0),
        ("ml.c4.8xlarge", 36, 60, 0),
        ("ml.c5.18xlarge", 72, 144, 0),
        ("ml.r8g.medium", 1, 8, 0),
        ("ml.r7i.48xlarge", 192, 1536, 0),
        ("ml.g4dn.12xlarge", 48, 192, 4),
        ("ml.g4dn.16xlarge", 64, 256, 1),
        ("ml.g6e.48xlarge", 192, 1536, 8),
        ("ml.p2.16xlarge", 64, 732, 16),
        ("ml.p3.2xlarge", 8, 61, 1),
        ("ml.p4d.24xlarge", 96, 1152, 8),
        ("ml.p5.4xlarge", 16, 256, 1),
        ("ml.p5.48xlarge", 192, 2048, 8),
        ("ml.inf2.24xlarge", 96, 384, 0),
        ("ml.trn1.32xlarge", 128, 512, 0),
    ],
)
def test_types_have_what_aws_says(name: str, cpus: float, memory_gib: float, gpus: int) -> None:
    assert Catalogue(HUGE).resources(name) == Resources(cpus, int(memory_gib * GIB), gpus)


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
    text = r"no instance type 'ml.m5.lrage'.* there are ml.m5.large, .*ml.local.cpu.* and SageMaker's.*--catalogue"
    with pytest.raises(ApiError, match=text) as raised:
        Catalogue(MACHINE, {"ml.my.own": MACHINE}).resources("ml.m5.lrage")
    assert "ml.my.own" in raised.value.message
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
