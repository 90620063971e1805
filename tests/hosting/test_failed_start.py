"""A host that cannot start leaves nothing of its substrate behind."""

import asyncio
from pathlib import Path

import pytest

from halimede.hosting.host import Host
from halimede.hosting.settings import HostSettings
from halimede.hosting.store.object_store import ObjectStore, StoreError
from halimede.hosting.substrates.catalogue import this_machine
from halimede.hosting.substrates.local import LocalSubstrate


def test_substrate_is_stopped_if_the_store_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[bool] = []
    stop = LocalSubstrate.stop

    async def note(substrate: LocalSubstrate, *, leave: bool) -> None:
        stopped.append(leave)
        await stop(substrate, leave=leave)

    async def refuse(_: ObjectStore) -> None:
        raise StoreError("the store cannot be opened")

    monkeypatch.setattr(LocalSubstrate, "stop", note)
    monkeypatch.setattr(ObjectStore, "open", refuse)

    async def start() -> None:
        await Host(HostSettings(tmp_path, this_machine(0), port=0)).start()

    with pytest.raises(StoreError):
        asyncio.run(start())
    assert stopped == [False]
