"""TensorFlow itself, as `tf` and `v1`, imported here only, with its messages kept out of the server's log.

It is imported without Keras, which models do not need and which costs as much again in time and 80 MB. Environment
variables that the user has set are left alone.
"""

import ctypes
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger("halimede")

_LEGACY_KERAS = "TF_USE_LEGACY_KERAS"
_UNBUFFERED = 2  # _IONBF


@contextmanager
def _without_keras() -> Iterator[None]:
    """`import tensorflow` imports the Keras that this variable names, and takes it if there is none of that name."""
    if _LEGACY_KERAS in os.environ:
        yield
        return
    os.environ[_LEGACY_KERAS] = "1"
    try:
        yield
    finally:
        del os.environ[_LEGACY_KERAS]


@contextmanager
def _quiet() -> Iterator[None]:
    """TensorFlow writes of itself to C's `stderr` while it is loaded, whatever TF_CPP_MIN_LOG_LEVEL says.

    Only that stream is turned aside, not the file descriptor: the server and its children write there too. What was
    written is logged as detail.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only
    library = ctypes.CDLL(None)
    library.fopen.restype = ctypes.c_void_p
    library.setvbuf.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t]
    library.fileno.argtypes = [ctypes.c_void_p]
    with tempfile.NamedTemporaryFile() as file:
        stderr = ctypes.c_void_p.in_dll(library, "stderr")
        own, aside = stderr.value, library.fopen(file.name.encode(), b"we")
        library.setvbuf(aside, None, _UNBUFFERED, 0)
        stderr.value = aside
        try:
            yield
        finally:
            stderr.value = own
            for line in file.read().decode(errors="replace").splitlines():
                logger.debug("tensorflow: %s", line)
            # some library remembers the stream, so that it must not be closed; from now on it is the usual one
            os.dup2(2, library.fileno(aside), inheritable=False)


with _without_keras(), _quiet():
    import tensorflow as tf
    from tensorflow.core.protobuf.config_pb2 import CallableOptions
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as SavedModelProto
    from tensorflow.python.framework.op_def_registry import get as operator_definition

__all__ = ["CallableOptions", "SavedModelProto", "operator_definition", "tf", "v1"]

# advice to programmers, such as that an interface is of TensorFlow 1
tf.get_logger().setLevel(logging.ERROR)

v1: Any = tf.compat.v1
