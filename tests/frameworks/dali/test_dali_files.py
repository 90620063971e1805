import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvidia.dali", reason="needs DALI: pip install 'halimede[dali]'")

from nvidia.dali import fn, types

from halimede.backends.base import BackendOptions
from halimede.backends.dali.errors import dali_error
from halimede.config.autofill import autofill
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import (
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfMemoryError,
    UnsupportedError,
)
from tests.backends.helpers import Loaded, floats
from tests.frameworks.dali.dali_models import decoder, doubler, load, serialized, source_of, write
from tests.support.foreign_files import each_foreign_file

MODULE = """
from nvidia import dali
from nvidia.dali import types
from nvidia.dali.plugin.triton import autoserialize

@autoserialize
@dali.pipeline_def(batch_size=16, num_threads=2, device_id=0, output_dtype=types.FLOAT, output_ndim=1)
def pipe():
    return dali.fn.external_source(name="X", dtype=types.FLOAT, ndim=1) * 3
"""


def refusal(directory: Path, pipeline: bytes | str, config: str = "") -> HalimedeError:
    with pytest.raises(HalimedeError) as caught:
        load(directory, pipeline, config)
    return caught.value


def test_a_module_is_served(tmp_path: Path) -> None:
    model = load(tmp_path, MODULE, 'output { name: "OUT" }')
    assert model.config.max_batch_size == 16
    assert model(X=floats([1, 2]))["OUT"].tolist() == [[3, 6]]


def test_a_module_runs_in_a_process_of_its_own_and_finds_its_neighbours(tmp_path: Path) -> None:
    beside = (
        "import os\nfrom pathlib import Path\nPath(__file__).with_name('pid').write_text(str(os.getpid()))"
    )
    model = write(tmp_path, MODULE + "\nimport beside\nimport batch_that_is_not_ours\n")
    (model / "1" / "beside.py").write_text(beside)
    (model / "1" / "batch_that_is_not_ours.py").touch()
    load(tmp_path, MODULE + "\nimport beside\nimport batch_that_is_not_ours\n")
    assert int((model / "1" / "pid").read_text()) != os.getpid()


def test_a_module_does_not_see_the_modules_of_the_server(tmp_path: Path) -> None:
    error = refusal(tmp_path, MODULE + "\nimport dali_settings\n")
    assert "No module named 'dali_settings'" in error.message


def test_a_serialized_pipeline_goes_before_a_module(tmp_path: Path) -> None:
    write(tmp_path, "raise RuntimeError('not this one')")
    model = load(tmp_path, doubler(), 'output { name: "OUT" }')
    assert model(X=floats([1]))["OUT"].tolist() == [[2]]


def test_the_configuration_may_name_the_file(tmp_path: Path) -> None:
    for filename, pipeline in (("other.dali", doubler()), ("other.py", MODULE)):
        write(tmp_path, pipeline, filename)
        source = source_of(
            tmp_path, b"damaged", f'default_model_filename: "{filename}" output {{ name: "OUT" }}'
        )
        assert Loaded(source)(X=floats([1]))["OUT"].tolist() in ([[2]], [[3]])


@pytest.mark.parametrize("filename", ["model.dali", "dali.py"])
def test_the_backend_is_told_by_the_file(tmp_path: Path, filename: str) -> None:
    directory = write(tmp_path, b"", filename)
    config = ModelConfig()
    autofill(config, "m", directory)
    assert (config.backend, config.default_model_filename) == ("dali", filename)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("x = 1", "exactly one function with the decorators @autoserialize and @pipeline_def, found: none"),
        (MODULE + MODULE.replace("def pipe", "def other"), "found: other, pipe"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def", "SyntaxError"),
        ("raise RuntimeError('on purpose')", "RuntimeError: on purpose"),
        ("import os; os._exit(7)", "its process ended with status 7"),
        (MODULE.replace("batch_size=16, ", ""), "The batch size must be set"),
        (MODULE.replace("@dali.pipeline_def", "#"), "Only `@pipeline_def` can be decorated"),
    ],
)  # fmt: skip
def test_a_module_that_gives_no_pipeline_says_why(tmp_path: Path, module: str, said: str) -> None:
    error = refusal(tmp_path, module)
    assert isinstance(error, InvalidArgumentError)
    assert error.message.startswith("unable to load model 'm': ")
    assert "dali.py gave no pipeline: " in error.message
    assert said in error.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    source = source_of(tmp_path, b"")
    (source.version_directory / "model.dali").unlink()
    with pytest.raises(
        NotFoundError, match=r"there is no file .*model\.dali; expected a serialized DALI pipeline"
    ):
        Loaded(source)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pipeline",
        decoder()[:500],
        decoder()[:-1],
        b"\x08\x01\x10\x08",
        decoder().replace(b"IMAGE", b"IMAG\xff"),
    ],
)
def test_a_file_that_is_no_pipeline_is_named(tmp_path: Path, content: bytes) -> None:
    error = refusal(tmp_path, content)
    assert isinstance(error, InvalidArgumentError)
    assert "model.dali: it is no serialized DALI pipeline" in error.message


def test_a_pipeline_of_operators_that_dali_does_not_have_is_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path, decoder().replace(b"decoders__Image", b"decoders__Imagf"))
    assert isinstance(error, InternalError)
    assert "decoders__Imagf" in error.message


def test_a_pipeline_with_operators_on_a_gpu_needs_one(tmp_path: Path) -> None:
    def mixed() -> Any:
        return fn.decoders.image(fn.external_source(name="X", dtype=types.UINT8, ndim=1), device="mixed")

    def moved() -> Any:
        return fn.external_source(name="X", dtype=types.UINT8, ndim=1).gpu()

    for number, define in enumerate((mixed, moved)):
        pipeline = serialized(define, output_dtype=types.UINT8, output_ndim=3 - 2 * number)
        error = refusal(tmp_path / str(number), pipeline)
        assert isinstance(error, UnsupportedError)
        assert "its pipeline has operators that run on a GPU, but its instances are KIND_CPU" in error.message


def test_a_pipeline_that_was_made_for_a_gpu_runs_without_one_if_no_operator_needs_it(tmp_path: Path) -> None:
    from halimede.backends.dali.pipeline_pb2 import Pipeline

    made = Pipeline.FromString(doubler())
    made.device_id = 0
    model = load(tmp_path, made.SerializeToString(), 'output { name: "OUT" }')
    assert model(X=floats([1, 2]))["OUT"].tolist() == [[2, 4]]


def test_video_inputs_are_refused(tmp_path: Path) -> None:
    pipeline = serialized(lambda: fn.experimental.inputs.video(name="VIDEO", sequence_length=3, device="cpu"))
    error = refusal(tmp_path, pipeline)
    assert isinstance(error, UnsupportedError)
    assert (
        "it has the input operator 'VIDEO' (fn.experimental.inputs.video), which is not supported"
        in error.message
    )


def test_a_plugin_library_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    options = BackendOptions({"plugin_libs": "/no/such/library.so"})
    with pytest.raises(InvalidArgumentError, match=r"plugin_libs: cannot load '/no/such/library\.so'"):
        load(tmp_path, doubler(), options=options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nvImageCodec failure: '#3'", "it is damaged or cut short"),
        ("nvImageCodec failure: '#14'", "it is no image, or of a format that is not supported"),
        ("Failed to decode sample #0 : ", "it is damaged or cut short"),
    ],
)
def test_an_image_that_cannot_be_decoded_is_the_clients_error(text: str, said: str) -> None:
    error = dali_error(
        RuntimeError(f"Error in CPU operator `nvidia.dali.fn.decoders.image`,\nencountered:\n{text}")
    )
    assert isinstance(error, InvalidArgumentError)
    assert error.message == f"dali error in nvidia.dali.fn.decoders.image: cannot decode the image: {said}"


def test_other_errors_of_a_pipeline_are_told_without_its_source() -> None:
    text = (
        "Error in CPU operator `nvidia.dali.fn.resize`,\nFile 'p.py'\nencountered:\n\nsize must be positive\n"
    )
    error = dali_error(
        RuntimeError("Critical error in pipeline:\n" + text + "Current pipeline object is no longer valid.")
    )
    assert isinstance(error, InternalError)
    assert error.message == "dali error in nvidia.dali.fn.resize: size must be positive"
    assert (
        dali_error(RuntimeError("nvImageCodec failure: '#17'")).message
        == "dali error: nvImageCodec failure: '#17'"
    )


def test_want_of_memory_is_an_error_of_its_own() -> None:
    text = "Error in CPU operator `nvidia.dali.fn.resize`,\nencountered:\n\nstd::bad_alloc\nCurrent pipeline object"
    assert isinstance(dali_error(RuntimeError(text)), OutOfMemoryError)
    assert isinstance(dali_error(MemoryError()), OutOfMemoryError)
    assert isinstance(dali_error(RuntimeError("model OOM: bad"), ("OOM",)), InternalError)


@each_foreign_file
def test_an_unreadable_file_is_told_by_what_it_looks_like(tmp_path: Path, content: bytes, text: str) -> None:
    error = refusal(tmp_path, content)
    assert "model.dali: it is no serialized DALI pipeline" in error.message
    assert f"({text}" in error.message
