import asyncio
from pathlib import Path

from halimede.net.file_watch import FileWatch

NEVER_S = 3600.0


def test_files_are_read_once_they_have_stayed_the_same_for_a_look(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for file in (first, second):
        file.write_text("old")
    read: list[str] = []

    async def scenario() -> None:
        watch = FileWatch([first, second], lambda: read.append(first.read_text()), NEVER_S)
        look = watch._look  # looks come when the test wants them  # noqa: SLF001 - looks come when the test wants them
        look()
        first.write_text("new, but second is not")
        look()
        assert not read
        second.write_text("new as well")
        look()
        assert not read
        look()
        look()
        assert read == ["new, but second is not"]
        watch.close()

    asyncio.run(scenario())


def test_a_file_that_comes_and_goes_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    changes: list[bool] = []

    async def scenario() -> None:
        watch = FileWatch([file], lambda: changes.append(file.exists()), NEVER_S)
        for write in (file.touch, file.unlink):
            write()
            watch._look()  # noqa: SLF001 - looks come when the test wants them
            watch._look()  # noqa: SLF001 - looks come when the test wants them
        assert changes == [True, False]
        watch.close()

    asyncio.run(scenario())


def test_a_watch_that_was_started_twice_looks_once_and_closes(tmp_path: Path) -> None:
    async def scenario() -> None:
        watch = FileWatch([tmp_path / "file"], lambda: None, NEVER_S)
        watch.start()
        timer = watch._timer  # noqa: SLF001 - that no second timer was set shows nowhere else
        watch.start()
        assert watch._timer is timer  # noqa: SLF001 - that no second timer was set shows nowhere else
        watch.close()
        assert timer is not None
        assert timer.cancelled()

    asyncio.run(scenario())
