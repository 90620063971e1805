import builtins
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from halimede.cli.cloud import model_repositories
from halimede.cli.options import ServeOptions

OPTIONS = ServeOptions(model_repository=("s3://http://127.0.0.1:9/bucket/models", "local"))


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variables of clouds, and a home of the test's own."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "TRITON_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def kept_in(options: ServeOptions) -> Path:
    """The directory where models of the bucket are kept."""
    (local, mirrored), cloud = model_repositories(options)
    assert cloud is not None
    cloud.close()
    assert local == Path("local")
    return mirrored.parent.parent


def test_models_of_buckets_are_kept_where_flag_environment_or_home_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert kept_in(OPTIONS) == tmp_path / ".cache" / "halimede" / "models"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert kept_in(OPTIONS) == tmp_path / "xdg" / "halimede" / "models"
    monkeypatch.setenv("TRITON_AWS_MOUNT_DIRECTORY", str(tmp_path / "mount"))
    assert kept_in(OPTIONS) == tmp_path / "mount"
    assert kept_in(replace(OPTIONS, cloud_cache_directory=str(tmp_path / "flag"))) == tmp_path / "flag"


def test_directories_alone_need_no_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "__import__", _without("obstore"))
    assert model_repositories(ServeOptions(model_repository=("b", "a"))) == ((Path("a"), Path("b")), None)


@pytest.mark.parametrize("package", ["obstore", "boto3"])
def test_a_missing_package_is_told_with_the_line_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("halimede.repository.cloud.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", _without(package))
    with pytest.raises(click.UsageError) as caught:
        model_repositories(OPTIONS)
    assert str(caught.value) == (
        f"--model-repository {OPTIONS.model_repository[0]}: buckets need {package}, which is not installed; "
        'install it with: pip install "halimede[cloud]"'
    )


def test_malformed_credentials_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(click.UsageError, match=r"the credentials cannot be used: .*profile \(nobody\)"):
        model_repositories(OPTIONS)
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("TRITON_CLOUD_CREDENTIAL_PATH", str(tmp_path / "missing.json"))
    with pytest.raises(click.UsageError, match=r"TRITON_CLOUD_CREDENTIAL_PATH: .* cannot be read"):
        model_repositories(OPTIONS)


def _without(package: str) -> Any:
    """An import that does not find a package."""
    real = builtins.__import__

    def find(name: str, *arguments: Any, **others: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named '{name}'", name=package)
        return real(name, *arguments, **others)

    return find
