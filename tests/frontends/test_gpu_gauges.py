import atexit
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from halimede.core import gpus
from halimede.core.errors import AlreadyExistsError
from halimede.engine.calls.custom_metrics import CustomMetrics
from halimede.frontends import gpu_gauges
from halimede.frontends.gpu_gauges import GpuGauges, open_gpu_gauges
from halimede.frontends.metrics import GPUS, Metrics, MetricsSettings
from tests.frontends.test_metrics import DOCUMENT, fake_engine
from tests.support.fake_nvml import FakeGpu, machine_with

HOUR_MS = 3_600_000


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[GpuGauges]]:
    """Gauges that end with the test."""
    gauges: list[GpuGauges] = []
    monkeypatch.setattr(atexit, "register", lambda close: gauges.append(close.__self__))
    yield gauges
    for each in gauges:
        each.close()


def scrape(gauges: GpuGauges | None) -> dict[str, dict[str, float]]:
    """Metrics of GPUs: name → UUID → value."""
    text = Metrics(fake_engine(), MetricsSettings(), gauges).render().decode()
    return {
        family.name: {sample.labels["gpu_uuid"]: sample.value for sample in family.samples}
        for family in text_string_to_metric_families(text)
        if family.name in {each.family.name for each in GPUS}
    }


def test_each_gpu_tells_of_itself_in_the_units_of_triton(
    opened: list[GpuGauges], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fakes = [FakeGpu("GPU-1"), FakeGpu("GPU-2", utilization=100, memory_used=1024)]
    library = machine_with(monkeypatch, tmp_path, fakes)
    gauges = open_gpu_gauges(HOUR_MS)
    assert gauges is not None
    fakes[0].energy += 2_500
    gauges.samples = gauges.measure()
    assert scrape(gauges) == {
        "nv_gpu_utilization": {"GPU-1": 0.25, "GPU-2": 1.0},
        "nv_gpu_memory_total_bytes": {"GPU-1": 150_754_820_096, "GPU-2": 150_754_820_096},
        "nv_gpu_memory_used_bytes": {"GPU-1": 2_147_483_648, "GPU-2": 1024},
        "nv_gpu_power_usage": {"GPU-1": 120.5, "GPU-2": 120.5},
        "nv_gpu_power_limit": {"GPU-1": 700.0, "GPU-2": 700.0},
        "nv_energy_consumption": {"GPU-1": 2.5, "GPU-2": 0.0},
    }
    assert (library.opened, library.closed) == (1, 0)
    opened.pop().close()
    assert library.closed == 1


def test_what_a_gpu_does_not_tell_has_no_sample(
    opened: list[GpuGauges], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine_with(monkeypatch, tmp_path, [FakeGpu("GPU-1"), FakeGpu("GPU-2")])
    monkeypatch.setenv(gpus.VISIBLE, "1,MIG-1f")
    scraped = scrape(open_gpu_gauges(HOUR_MS))
    assert set(scraped["nv_gpu_memory_used_bytes"]) == {"GPU-2", "MIG-1f"}
    for family in GPUS:
        if "memory" not in family.family.name:
            assert set(scraped[family.family.name]) == {"GPU-2"}


def test_gpus_are_measured_anew_every_interval(
    opened: list[GpuGauges], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (fake,) = fakes = [FakeGpu("GPU-1")]
    library = machine_with(monkeypatch, tmp_path, fakes)
    later, ask = Event(), library.nvmlDeviceGetMemoryInfo

    def measured(handle: FakeGpu) -> Any:
        if handle.memory_used == 7:
            later.set()
        return ask(handle)

    monkeypatch.setattr(library, "nvmlDeviceGetMemoryInfo", measured)
    gauges = open_gpu_gauges(1)
    assert gauges is not None
    fake.memory_used = 7
    assert later.wait(30)
    opened.pop().close()
    assert scrape(gauges)["nv_gpu_memory_used_bytes"] == {"GPU-1": 7}


def test_without_gpus_nothing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine_with(monkeypatch, tmp_path, [])
    assert open_gpu_gauges(HOUR_MS) is None
    assert scrape(None) == {}


def test_without_visible_gpus_nvml_is_let_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = machine_with(monkeypatch, tmp_path, [FakeGpu("GPU-1")])
    monkeypatch.setenv(gpus.VISIBLE, "")
    assert open_gpu_gauges(HOUR_MS) is None
    assert library.opened == library.closed == 1


def test_without_the_package_nothing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine_with(monkeypatch, tmp_path, [FakeGpu("GPU-1")])

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(gpus, "import_module", missing)
    assert gpu_gauges.open_gpu_gauges(HOUR_MS) is None


@pytest.mark.parametrize("gauge", GPUS, ids=lambda gauge: gauge.family.name)
def test_metrics_of_gpus_are_explained_and_their_names_kept(gauge: Any) -> None:
    family = gauge.family
    assert re.search(rf"^\| `{family.name}` \| {family.type} \|", DOCUMENT.read_text(), re.MULTILINE)
    custom = CustomMetrics()
    Metrics(fake_engine(custom=custom), MetricsSettings())
    with pytest.raises(AlreadyExistsError, match=f"'{family.name}' is that of a metric of the server"):
        custom.family(family.name, "mine", "counter")


def test_gpus_are_measured_again_after_a_failure_that_nobody_foresaw(
    opened: list[GpuGauges],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    library = machine_with(monkeypatch, tmp_path, [FakeGpu("GPU-1")])
    gauges = open_gpu_gauges(1)
    assert gauges is not None
    failures, later, ask = [RuntimeError("unforeseen")], Event(), library.nvmlDeviceGetMemoryInfo

    def measured(handle: FakeGpu) -> Any:
        if failures:
            raise failures.pop()
        later.set()
        return ask(handle)

    monkeypatch.setattr(library, "nvmlDeviceGetMemoryInfo", measured)
    assert later.wait(30)
    assert "GPUs could not be measured" in caplog.messages
