"""The stand-in for NVML against the real module, which can be imported without a GPU."""

import inspect

import pytest

from tests.support.fake_nvml import FakeNvml

pynvml = pytest.importorskip("pynvml", reason="needs nvidia-ml-py: pip install 'halimede[gpu]'")

CALLS = [name for name in vars(FakeNvml) if name.startswith("nvml")]


@pytest.mark.parametrize("name", CALLS)
def test_the_stand_ins_calls_are_nvmls(name: str) -> None:
    real = list(inspect.signature(getattr(pynvml, name)).parameters.values())
    ours = list(inspect.signature(getattr(FakeNvml, name)).parameters)[1:]
    assert [each.name for each in real if each.default is inspect.Parameter.empty] == ours


def test_errors_and_fields_are_nvmls() -> None:
    assert issubclass(pynvml.NVMLError_NotSupported, pynvml.NVMLError)
    assert "gpu" in dict(pynvml.c_nvmlUtilization_t._fields_)
    assert {"total", "used"} <= set(dict(pynvml.c_nvmlMemory_t._fields_))
