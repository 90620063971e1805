"""The host that scripts of SDKs use, and what they upload."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosting.sdks.running import build_archives
from tests.support.host import HostProcess, start_host

IMAGES = f"""
[[images]]
pattern = ".*/triton/custom:.*"
command = ["{sys.executable}", "-c", "from halimede.cli.main import main; main(['sagemaker-serve'])"]
"""
"""What runs for an image of one's own registry: this server, which is called with `serve`, as a container is."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sdks")
    build_archives(directory)
    return directory


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    directory = tmp_path_factory.mktemp("host")
    (directory / "images.toml").write_text(IMAGES)
    # all scripts at once have more instances than two processors otherwise give out
    flags = ("--capture-file-seconds=1", "--oversubscription=32", f"--image-rules={directory}/images.toml")
    with start_host(directory / "host", *flags) as running:
        yield running
