import errno

import pytest

from halimede.core.errors import InternalError, OutOfMemoryError
from halimede.core.out_of_memory import is_out_of_memory, lacks_memory


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "TensorRT: CUDA_OUT_OF_MEMORY",
        "Out of memory",
        "MemoryError: ",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB",
        "torch.OutOfMemoryError: no",
        "Dst tensor is not initialized.",
        "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate",
        "onnx runtime error 1: Failed to allocate memory for requested buffer of size 12",
        "[Errno 28] No space left on device: '/tmp/x'",
        "[Errno 12] Cannot allocate memory",
        "std::bad_alloc",
        "failed: OOM.",
        "was killed by SIGKILL, probably by the kernel's out-of-memory killer, which has ended a process",
    ],
)
def test_words_of_frameworks_are_understood(text: str) -> None:
    assert is_out_of_memory(text)


@pytest.mark.parametrize(
    "text",
    [
        "load failed for model 'BLOOM': version 1 is at UNAVAILABLE state: Internal: no such file",
        "ZOOM cannot be opened",
        "OOMPH is missing",
        "the setting memory is wrong",
        "it was killed by SIGKILL, perhaps by the kernel's out-of-memory killer",
        "was killed by SIGKILL, but not by the kernel's out-of-memory killer, which has not acted",
    ],
)
def test_words_that_only_look_alike_are_not(text: str) -> None:
    assert not is_out_of_memory(text)


def test_the_name_and_the_path_of_the_model_say_nothing() -> None:
    text = "load failed for model 'OOM': there is no file /models/OOM/1/model.onnx"
    assert is_out_of_memory(text)
    assert not is_out_of_memory(text, ("OOM", "/models/OOM"))
    assert not is_out_of_memory(text, ("", "OOM"))
    assert is_out_of_memory(text + ": out of memory", ("OOM", "/models/OOM"))


def test_types_tell_of_themselves_and_of_their_causes() -> None:
    assert lacks_memory(MemoryError())
    assert lacks_memory(OutOfMemoryError("no"))
    assert lacks_memory(OSError(errno.ENOSPC, "No space left on device"))
    assert lacks_memory(OSError(errno.ENOMEM, "Cannot allocate memory"))
    assert not lacks_memory(OSError(errno.ENOENT, "No such file"))
    assert not lacks_memory(InternalError("out of memory"))
    consequence = InternalError("the model cannot be read")
    consequence.__cause__ = MemoryError()
    assert lacks_memory(consequence)
