"""Models that are to be loaded while the machine of an instance is out of reach, which the host does not know yet."""

from contextlib import suppress
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.routing.residency.settings import ResidencySettings
from halimede.hosting.store.source import ModelSource
from halimede.hosting.substrates.base import NodeUnreachableError, RunningInstance
from halimede.hosting.substrates.model_files import LocalModelFiles
from tests.hosting.residency.serving import multi_model
from tests.hosting.residency.test_residency import ask, settle
from tests.support.waiting import wait_until

UNREACHABLE = ("AllTraffic-0", "AllTraffic-1")


class Files(LocalModelFiles):
    """The files of an instance; nothing can be done with those of some instances."""

    unreachable: tuple[str, ...] = ()

    def __init__(self, instance: RunningInstance) -> None:
        super().__init__(instance)
        self._name = instance.request.id

    def _check(self) -> None:
        if self._name in self.unreachable:
            raise NodeUnreachableError("the connection broke")

    async def fetch(self, name: str, url: str, source: ModelSource, timeout_s: float) -> int:
        self._check()
        return await super().fetch(name, url, source, timeout_s)

    async def remove(self, name: str) -> None:
        self._check()
        await super().remove(name)


class Lost(Files):
    """The same; it is known that all of theirs is gone."""

    async def remove(self, name: str) -> None:
        if self._name not in self.unreachable:
            await super().remove(name)


@pytest.mark.parametrize("files", [Files, Lost])
def test_a_model_is_loaded_by_an_instance_that_can_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: type[Files]
) -> None:
    monkeypatch.setattr(files, "unreachable", UNREACHABLE)
    with multi_model(tmp_path, 3, files=files) as rig:
        for number in range(20):
            assert ask(rig, f"m{number}", b"body") == b"body"
        assert rig.loaded(2) == {f"m{number}" for number in range(20)}
        settle(rig)


def test_a_request_fails_with_the_reason_if_no_instance_can_be_reached_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Files, "unreachable", UNREACHABLE)
    with multi_model(tmp_path, 2, files=Files, settings=ResidencySettings(failure_s=0.01)) as rig:
        with pytest.raises(ClientError, match="cannot be reached now: the connection broke") as raised:
            ask(rig, "m")
        assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        monkeypatch.setattr(Files, "unreachable", ())

        def is_answered() -> bool:
            with suppress(ClientError):
                return ask(rig, "m", b"body") == b"body"
            return False

        wait_until(is_answered)
        settle(rig)
