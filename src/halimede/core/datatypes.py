"""Tensor datatypes: protocol name, number in `config.pbtxt`, bytes an element, numpy type.

Names are those of the KServe v2 protocol; numbers those of `DataType` in Triton's model configuration.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Datatype:
    """One datatype.

    Attributes:
        name: the protocol's name, such as ``FP32``; strings are ``BYTES``.
        number: its value in the enumeration `DataType` of the model configuration.
        itemsize: bytes an element; 0 for BYTES, whose elements vary.
        numpy: the array type that holds it, little-endian. BF16, which numpy lacks, is held as its
            16 bits in ``uint16``; BYTES as an object array of ``bytes``.
    """

    name: str
    number: int
    itemsize: int
    numpy: np.dtype[Any] = field(compare=False)

    @property
    def config_name(self) -> str:
        """Its name in `config.pbtxt`: ``TYPE_FP32``, ``TYPE_STRING``."""
        return "TYPE_STRING" if self.name == "BYTES" else f"TYPE_{self.name}"

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> "tuple[Callable[[str], Datatype], tuple[str]]":
        """Pickle it by its name, as datatypes are told apart by identity."""
        return _named, (self.name,)


BOOL = Datatype("BOOL", 1, 1, np.dtype(np.bool_))
UINT8 = Datatype("UINT8", 2, 1, np.dtype("u1"))
UINT16 = Datatype("UINT16", 3, 2, np.dtype("<u2"))
UINT32 = Datatype("UINT32", 4, 4, np.dtype("<u4"))
UINT64 = Datatype("UINT64", 5, 8, np.dtype("<u8"))
INT8 = Datatype("INT8", 6, 1, np.dtype("i1"))
INT16 = Datatype("INT16", 7, 2, np.dtype("<i2"))
INT32 = Datatype("INT32", 8, 4, np.dtype("<i4"))
INT64 = Datatype("INT64", 9, 8, np.dtype("<i8"))
FP16 = Datatype("FP16", 10, 2, np.dtype("<f2"))
FP32 = Datatype("FP32", 11, 4, np.dtype("<f4"))
FP64 = Datatype("FP64", 12, 8, np.dtype("<f8"))
BYTES = Datatype("BYTES", 13, 0, np.dtype(np.object_))
BF16 = Datatype("BF16", 14, 2, np.dtype("<u2"))
INVALID = Datatype("<invalid>", 0, 1, np.dtype("u1"))
"""Stands for a datatype name that is unknown; no model has it."""

ALL = (BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, FP32, FP64, BYTES, BF16)


def _named(name: str) -> Datatype:
    return BY_NAME.get(name, INVALID)


BY_NAME = {datatype.name: datatype for datatype in ALL}
BY_NUMBER = {datatype.number: datatype for datatype in ALL}
