"""Commands say how far they are in steps that take long, for the bars of a terminal."""

from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest

from halimede.cli.loading import LoadingStep
from halimede.cli.main import main
from halimede.core.steps import watched_by
from tests.cli.echo import write_model
from tests.support.onnx_models import FLOAT, build
from tests.support.steps import SeenSteps


@pytest.fixture
def seen() -> Iterator[SeenSteps]:
    steps = SeenSteps()
    with watched_by(steps):
        yield steps


def run(*arguments: str | Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    assert not ended.value.code


def test_pack(seen: SeenSteps, tmp_path: Path) -> None:
    directory = write_model(tmp_path, "m")
    (directory / "1" / "weights").write_bytes(bytes(3_000_000))
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    run("pack", directory, "-o", tmp_path / "m.tar.gz")
    assert seen.ended_steps == [("Packing m.tar.gz", size, size)]


def test_check(seen: SeenSteps, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_model(tmp_path, name)
    run("check", tmp_path)
    assert seen.ended_steps == [("Examining b", 2, 2)]


def test_init(seen: SeenSteps, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    model = build(
        [onnx.helper.make_node("Add", ["x", "x"], ["y"])], {"x": (FLOAT, ["n", 2])}, {"y": (FLOAT, ["n", 2])}
    )
    onnx.save(model, str(path))
    run("init", path, "--model-repository", tmp_path / "models")
    [copying] = [each for each in seen.ended_steps if each[0] == "Copying net"]
    assert copying[1] == copying[2] != 0


def test_baseline(seen: SeenSteps, tmp_path: Path) -> None:
    text = "age,city\n31,Oslo\n42,Lima\n"
    (tmp_path / "d.csv").write_text(text)
    run("baseline", tmp_path / "d.csv", "-o", tmp_path / "made")
    assert ("Reading d.csv", len(text), len(text)) in seen.ended_steps


def test_models_that_load(seen: SeenSteps) -> None:
    on_progress: list[Callable[[str, int | None, str, str], None]] = []
    with LoadingStep(on_progress):
        [changed] = on_progress
        changed("a", 1, "LOADING", "")
        changed("b", None, "LOADING", "")
        assert [each.text for each in seen.under_way] == ["Loading a 1, b"]
        changed("a", 1, "READY", "")
        changed("b", None, "UNAVAILABLE", "no file")
        changed("c", 1, "UNLOADING", "")
    assert on_progress == []
    assert seen.ended_steps == [("Loading models", 2, 2)]
