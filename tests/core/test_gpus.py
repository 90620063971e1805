from pathlib import Path

import pytest

from halimede.core import gpus
from halimede.core.gpus import find_gpus, missing_for_metrics, nvml, visible_gpus
from tests.support.fake_nvml import FakeGpu, machine_with

FOUR = [FakeGpu("GPU-aa00-1"), FakeGpu("GPU-ab00-2"), FakeGpu("GPU-cc00-3"), FakeGpu("GPU-dd00-4")]


def seen(listed: str | None, patch: pytest.MonkeyPatch, directory: Path) -> list[str]:
    """UUIDs of the GPUs that a process with that CUDA_VISIBLE_DEVICES sees, in the order of their numbers."""
    library = machine_with(patch, directory, FOUR)
    if listed is not None:
        patch.setenv(gpus.VISIBLE, listed)
    with nvml() as opened:
        assert opened is not None
        found = find_gpus(opened)
    assert [gpu.number for gpu in found] == list(range(len(found)))
    assert visible_gpus() == tuple(range(len(found)))
    assert library.opened == library.closed == 2
    return [gpu.uuid for gpu in found]


@pytest.mark.parametrize(
    ("listed", "uuids"),
    [
        (None, ["GPU-aa00-1", "GPU-ab00-2", "GPU-cc00-3", "GPU-dd00-4"]),
        ("2,0", ["GPU-cc00-3", "GPU-aa00-1"]),
        (" 1 , 3 ", ["GPU-ab00-2", "GPU-dd00-4"]),
        ("GPU-cc00-3,0", ["GPU-cc00-3", "GPU-aa00-1"]),
        ("gpu-c", ["GPU-cc00-3"]),
        ("MIG-1f,0", ["MIG-1f", "GPU-aa00-1"]),
    ],
)
def test_gpus_are_those_that_cuda_would_list(
    listed: str | None, uuids: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert seen(listed, monkeypatch, tmp_path) == uuids


@pytest.mark.parametrize(
    ("listed", "count"),
    [("", 0), ("-1", 0), ("-1,0", 0), ("0,-1,1", 1), ("1,,2", 1), ("0,9,1", 1), ("NoDevFiles", 0)],
)
def test_what_follows_an_entry_without_a_gpu_is_not_visible(
    listed: str, count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert len(seen(listed, monkeypatch, tmp_path)) == count


@pytest.mark.parametrize("listed", ["0,0", "0,GPU-aa00-1", "GPU-a", "MIG-2f"])
def test_what_is_named_twice_or_by_two_is_not_visible(
    listed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert seen(listed, monkeypatch, tmp_path) == []


def test_a_gpu_that_was_lost_is_not_visible(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine_with(monkeypatch, tmp_path, [FakeGpu("GPU-1", silent={"handle"}), FakeGpu("GPU-2")])
    assert visible_gpus() == (0,)


def test_a_machine_without_the_driver_has_none_and_nothing_is_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = machine_with(monkeypatch, tmp_path, [])
    assert visible_gpus() == ()
    assert missing_for_metrics() == "there is no NVIDIA GPU here"
    assert library.opened == 0


def test_a_driver_that_does_not_answer_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine_with(monkeypatch, tmp_path, FOUR, works=False)
    assert visible_gpus() == ()
    assert missing_for_metrics() == "NVIDIA's driver does not answer (NVML)"


@pytest.mark.parametrize(("listed", "count"), [(None, 4), ("0,2", 2), ("", 0), ("0,1,2,3,4,5", 4)])
def test_without_the_package_device_files_are_counted(
    listed: str | None, count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine_with(monkeypatch, tmp_path, FOUR)
    monkeypatch.setattr(gpus, "find_spec", lambda name: None)
    if listed is not None:
        monkeypatch.setenv(gpus.VISIBLE, listed)
    assert visible_gpus() == tuple(range(count))


def test_what_is_missing_for_metrics_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine_with(monkeypatch, tmp_path, FOUR)
    assert missing_for_metrics() == ""
    monkeypatch.setenv(gpus.VISIBLE, "-1")
    assert missing_for_metrics() == "CUDA_VISIBLE_DEVICES lists none of the GPUs here"
    monkeypatch.setattr(gpus, "find_spec", lambda name: None)
    assert missing_for_metrics() == (
        'the package nvidia-ml-py is not installed; install it with: pip install "halimede[gpu]"'
    )
