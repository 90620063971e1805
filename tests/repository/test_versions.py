import logging
from pathlib import Path

import pytest

from halimede.config.model_config_pb2 import ModelVersionPolicy
from halimede.core.versions import version_number
from halimede.repository.versions import find_versions, select_versions


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("1", 1),
        ("20", 20),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("9" * 5000, None),
        ("0", None),
        ("00", None),
        ("01", None),
        ("-1", None),
        ("+1", None),
        ("1.0", None),
        ("1_0", None),
        ("abc", None),
        ("", None),
        ("²", None),
        ("٣", None),
    ],
)
def test_version_directories_are_integers_without_leading_zeros(name: str, version: int | None) -> None:
    assert version_number(name) == version


def test_versions_are_directories_and_others_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tmp_path / "m"
    for name in ("10", "2", "0", "01", "abc", "warmup", "initial_state", "configs"):
        (model / name).mkdir(parents=True)
    (model / "3").write_text("a file is no version")
    (tmp_path / "elsewhere").mkdir()
    (model / "4").symlink_to(tmp_path / "elsewhere")
    (model / "5").symlink_to(tmp_path / "nowhere")
    with caplog.at_level(logging.WARNING, "halimede"):
        assert find_versions(model) == [2, 4, 10]
    assert sorted(caplog.messages) == [
        "ignore version directory '0' of model 'm': versions begin with 1",
        "ignore version directory '01' which contains leading zeros in its directory name, of model 'm'",
        "ignore version directory 'abc' which fails to convert to integral number, of model 'm'",
    ]


def test_policy_selects_versions() -> None:
    found = [3, 1, 20, 4]
    latest, every, specific = ModelVersionPolicy(), ModelVersionPolicy(), ModelVersionPolicy()
    latest.latest.num_versions = 1
    assert select_versions(latest, found) == [20]
    latest.latest.num_versions = 2
    assert select_versions(latest, found) == [4, 20]
    latest.latest.num_versions = 9
    assert select_versions(latest, found) == [1, 3, 4, 20]
    every.all.SetInParent()
    assert select_versions(every, found) == [1, 3, 4, 20]
    specific.specific.versions.extend([20, 7, 1, 1])
    assert select_versions(specific, found) == [1, 20]
    assert select_versions(ModelVersionPolicy(), []) == []
    assert select_versions(ModelVersionPolicy(), found) == [1, 3, 4, 20]
