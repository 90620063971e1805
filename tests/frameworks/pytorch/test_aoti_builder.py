"""`halimede build-engine --format=aoti`: exported programs compiled for this machine's processor."""

import shutil
from pathlib import Path
from typing import Any

import click
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'halimede[pytorch]'")

from halimede.cli.build_engine import command  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


class Scale(torch.nn.Module):  # type: ignore[name-defined]
    """Twice the input, and a weight added."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(4.0))

    def forward(self, x: Any) -> Any:
        return 2 * x + self.weight


def export(path: Path) -> Path:
    """A program with a free batch dimension."""
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(Scale().eval(), (torch.zeros(2, 4),), dynamic_shapes={"x": {0: batch}})
    torch.export.save(program, path)
    return path


def build(*arguments: Any) -> None:
    command.main(["--format=aoti", *(str(each) for each in arguments)], standalone_mode=False)


@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor compiles with a C++ compiler (g++)")
def test_a_program_becomes_a_package_that_answers_as_it_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, package = export(tmp_path / "program.pt2"), tmp_path / "model.pt2"
    # no kind of vectors is tried, which takes long
    quick = {"cpp.vec_isa_ok": False, "aot_inductor.compile_wrapper_opt_level": "O0"}
    with torch._inductor.config.patch(quick):  # noqa: SLF001 - PyTorch has no public name for it
        build("--program", program, "--save-engine", package, "--device=cpu")
    assert "package for cpu, in " in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"program.pt2", "model.pt2"}
    run = torch._inductor.aoti_load_package(str(package))  # noqa: SLF001 - PyTorch has no public name for it
    for rows in (1, 7):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(run(x), 2 * x + torch.arange(4.0))


def test_a_file_that_is_no_program_is_told(tmp_path: Path) -> None:
    program, package = tmp_path / "program.pt2", tmp_path / "model.pt2"
    program.write_bytes(b"no archive")
    with pytest.raises(click.ClickException) as caught:
        build("--program", program, "--save-engine", package)
    assert (
        caught.value.message == f"{program} is no program that torch.export.save has written (no zip archive)"
    )
    torch.save({}, program)
    with pytest.raises(click.ClickException, match=r"is no program that torch\.export\.save has written: "):
        build("--program", program, "--save-engine", package)
    assert not package.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told(tmp_path: Path) -> None:
    program = export(tmp_path / "program.pt2")
    with pytest.raises(click.ClickException, match=r"sees no GPU; say --device=cpu"):
        build("--program", program, "--save-engine", tmp_path / "model.pt2", "--device=cuda:0")
