"""What the models are given: numbers, and for those that decode, pictures."""

import struct
import zlib
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

PHOTOGRAPH = "photograph"


def numbers(rows: int, width: int) -> NDArray[np.float32]:
    """FP32 of shape [rows, width] from 0 to 1. Others, such as denormals, take another time."""
    return np.random.default_rng(0).random((rows, width), np.float32)


def picture(kind: str, side: int) -> bytes:
    """A picture: a drawn PNG of side × side pixels, or a JPEG photograph of 640 × 427."""
    if kind == PHOTOGRAPH:
        return files("sklearn.datasets.images").joinpath("flower.jpg").read_bytes()
    return drawn(side)


def drawn(side: int) -> bytes:
    """A PNG of side × side pixels in colour: waves with a little noise, as photographs have it."""
    x, y = np.meshgrid(np.arange(side), np.arange(side))
    waves = np.stack([np.sin(x / 30), np.sin(y / 20), np.sin((x + y) / 50)], axis=2) * 100 + 128
    noise = np.random.default_rng(0).normal(0, 4, waves.shape)
    pixels = (waves + noise).clip(0, 255).astype(np.uint8)
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)  # each begins with its filter: none
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in parts)


def chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
