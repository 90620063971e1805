import sys

import numpy as np
import pytest

from halimede_worker.tensors.tensors import Tensor
from tests.worker_site.tensors.test_dlpack import DTYPES

torch = pytest.importorskip("torch", reason="needs PyTorch (torch), which is not installed")


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_takes_and_gives_tensors_without_a_copy(dtype: str) -> None:
    array = np.ones((2, 3), dtype)
    taken = torch.from_dlpack(Tensor("A", array))
    assert taken.data_ptr() == array.ctypes.data
    assert taken.numpy().dtype == array.dtype
    assert Tensor.from_dlpack("B", taken).as_numpy().ctypes.data == array.ctypes.data


def test_a_tensor_that_torch_holds_is_referred_to_once() -> None:
    tensor = Tensor("A", np.zeros(3))
    before = sys.getrefcount(tensor)
    taken = torch.utils.dlpack.from_dlpack(tensor.to_dlpack())
    assert sys.getrefcount(tensor) == before + 1
    del taken
    assert sys.getrefcount(tensor) == before


def test_torch_s_bf16_arrives_and_leaves() -> None:
    tensor = Tensor.from_dlpack("A", torch.arange(3, dtype=torch.bfloat16))
    assert tensor.triton_dtype() == 14
    assert torch.from_dlpack(tensor).tolist() == [0, 1, 2]
    assert torch.from_dlpack(tensor).dtype == torch.bfloat16


def test_torch_s_tensors_without_elements_arrive_and_leave() -> None:
    tensor = Tensor.from_dlpack("A", torch.zeros(0, 3))
    assert tensor.as_numpy().shape == (0, 3)
    assert tuple(torch.from_dlpack(tensor).shape) == (0, 3)
