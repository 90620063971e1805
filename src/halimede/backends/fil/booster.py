"""A forest in XGBoost's library, called past the package's Python.

What that does for a call costs half a millisecond, a tenth of a batch of a thousand rows; to import it takes seconds
and 75 MB. The functions are those of XGBoost's C API.
"""

import ctypes
import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np

from halimede.core.tensors import Array

_LIBRARIES = ("libxgboost.so", "libxgboost.dylib", "xgboost.dll")

_PLACE = re.compile(r"\[\d\d:\d\d:\d\d\] \S+: ")

_VALUES = json.dumps(
    {
        "type": 0,
        "training": False,
        "iteration_begin": 0,
        "iteration_end": 0,
        "missing": float("nan"),
        "strict_shape": True,
        "cache_id": 0,
    }
).encode()
"""How to predict: what the objective makes of the sums of all trees, NaN being a missing value."""


class BoosterError(Exception):
    """The library refused; the text is its own."""


@cache
def library() -> Any:
    """The library of the installed package; None without."""
    spec = find_spec("xgboost")
    if spec is None or spec.origin is None:
        return None
    there = [path for name in _LIBRARIES if (path := Path(spec.origin).parent / "lib" / name).is_file()]
    if not there:
        return None
    found = ctypes.CDLL(str(there[0]))
    found.XGBGetLastError.restype = ctypes.c_char_p
    return found


class Booster:
    """A loaded forest; calls from several threads at once are safe, as XGBoost has it."""

    def __init__(self, data: bytes) -> None:
        """Load a forest, which predicts on one thread.

        Args:
            data: of a file in JSON or UBJSON.

        Raises:
            BoosterError: it is none that the library reads.
        """
        self._library = library()
        self._handle = ctypes.c_void_p()
        self._check(self._library.XGBSetGlobalConfig(b'{"verbosity": 0}'))
        self._check(self._library.XGBoosterCreate(None, ctypes.c_uint64(0), ctypes.byref(self._handle)))
        finalize(self, self._library.XGBoosterFree, self._handle)
        length = ctypes.c_uint64(len(data))
        self._check(self._library.XGBoosterLoadModelFromBuffer(self._handle, data, length))
        for key, value in ((b"nthread", b"1"), (b"verbosity", b"0")):
            self._check(self._library.XGBoosterSetParam(self._handle, key, value))

    def predict(self, rows: Array) -> Array:
        """Scores of shape ``[rows, scores]``, FP32.

        Args:
            rows: FP32 of shape ``[rows, features]``.

        Raises:
            BoosterError: the library refused.
        """
        rows = np.require(rows, np.float32, ["C", "A"])
        data = b'{"data":[%d,true],"shape":[%d,%d],"typestr":"<f4","version":3}' % (
            rows.ctypes.data,
            *rows.shape,
        )
        shape, scores = ctypes.POINTER(ctypes.c_uint64)(), ctypes.POINTER(ctypes.c_float)()
        dimensions = ctypes.c_uint64()
        returned = self._library.XGBoosterPredictFromDense(
            self._handle,
            data,
            _VALUES,
            None,
            ctypes.byref(shape),
            ctypes.byref(dimensions),
            ctypes.byref(scores),
        )
        self._check(returned)
        # copied: the thread's next call writes over it
        return np.ctypeslib.as_array(scores, tuple(shape[: dimensions.value])).copy()

    def _check(self, returned: int) -> None:
        if returned:
            text = self._library.XGBGetLastError().decode(errors="replace")
            raise BoosterError(" ".join(_PLACE.sub("", text.partition("Stack trace:")[0]).split()))
