"""Cyclic redundancy checks that Python's library lacks, over many words at a time.

A register that is advanced over zero bytes changes by a linear map, which is kept as eight tables: what each byte of
the register becomes. Everything here is that one map, applied to whole arrays: over 8 bytes to take the next word,
over a lane's length to join the lanes.
"""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Words = NDArray[np.uint64]

_WORD_BYTES = 8
_LANE_WORDS = 8
_SHORT_BYTES = 256
"""So few bytes are taken one at a time."""


class Crc:
    """A reflected CRC that begins and ends with all bits flipped (the Rocksoft model).

    Attributes:
        width: of how many bits, at most 64.
    """

    def __init__(self, polynomial: int, width: int) -> None:
        """A CRC.

        Args:
            polynomial: reflected, so that its highest power is the lowest bit.
            width: of how many bits, a multiple of 8, at most 64.
        """
        self.width = width
        self._polynomial = polynomial
        self._ones = (1 << width) - 1

    def update(self, data: bytes | memoryview, crc: int = 0) -> int:
        """The check of what had `crc`, followed by `data`."""
        register = crc ^ self._ones
        if len(data) < _SHORT_BYTES:
            return self._step(register, data) ^ self._ones
        begin = len(data) % (_WORD_BYTES * _LANE_WORDS)
        register = self._step(register, data[:begin])
        words = np.frombuffer(data, "<u8", offset=begin).astype(np.uint64)
        words[0] ^= np.uint64(register)
        return self._register_after(words) ^ self._ones

    def combine(self, crc: int, following: int, length: int) -> int:
        """The check of two pieces one after the other.

        Args:
            crc: the first one's.
            following: the second one's.
            length: the second one's bytes.
        """
        words, rest = divmod(length, _WORD_BYTES)
        register = np.array([crc], np.uint64)
        level = 0
        while words:
            if words & 1:
                register = _apply(self._over(level), register)
            words >>= 1
            level += 1
        return self._step(int(register[0]), bytes(rest)) ^ following

    def _step(self, register: int, data: bytes | memoryview) -> int:
        table = self._bytes
        for byte in data:
            register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
        return register

    def _register_after(self, words: _Words) -> int:
        lanes = words.reshape(-1, _LANE_WORDS)
        registers = np.zeros(len(lanes), np.uint64)
        for column in np.ascontiguousarray(lanes.T):
            registers = _apply_pairs(self._pairs, registers ^ column)
        level = _LANE_WORDS.bit_length() - 1
        while len(registers) > 1:
            if len(registers) % 2:
                registers = np.concatenate((np.zeros(1, np.uint64), registers))  # zeros before change nothing
            registers = _apply(self._over(level), registers[0::2]) ^ registers[1::2]
            level += 1
        return int(registers[0])

    @cached_property
    def _bytes(self) -> list[int]:
        table = []
        for value in range(256):
            for _ in range(8):
                value = (value >> 1) ^ (self._polynomial if value & 1 else 0)
            table.append(value)
        return table

    @cached_property
    def _maps(self) -> list[_Words]:
        """The map over 8 bytes, over 16, over 32 and so on, as far as was needed: each of eight tables of 256."""
        byte_table = np.array(self._bytes, np.uint64)
        tables = [byte_table]
        for _ in range(_WORD_BYTES - 1):
            last = tables[-1]
            tables.append(byte_table[last & np.uint64(0xFF)] ^ (last >> np.uint64(8)))
        return [np.stack(tables[::-1])]

    @cached_property
    def _pairs(self) -> _Words:
        """The map over 8 bytes in four tables of 65,536: half as many to look up, where it is applied most."""
        tables = self._over(0)
        return np.stack(
            [(high[:, None] ^ low).ravel() for low, high in zip(tables[0::2], tables[1::2], strict=True)]
        )

    def _over(self, level: int) -> _Words:
        """The map over ``8 << level`` bytes."""
        maps = self._maps
        while len(maps) <= level:
            maps.append(_apply(maps[-1], maps[-1]))
        return maps[level]


def _apply(tables: _Words, registers: _Words) -> _Words:
    return _look_up(tables, registers.reshape(-1, 1).view(np.uint8)).reshape(registers.shape)


def _apply_pairs(tables: _Words, registers: _Words) -> _Words:
    return _look_up(tables, registers.reshape(-1, 1).view(np.uint16))


def _look_up(tables: _Words, places: NDArray[Any]) -> _Words:
    """What the tables, one a column, have at these places."""
    result: _Words = tables[0].take(places[:, 0])
    for index in range(1, len(tables)):
        result ^= tables[index].take(places[:, index])
    return result


CRC32 = Crc(0xEDB88320, 32)
CRC32C = Crc(0x82F63B78, 32)
CRC64NVME = Crc(0x9A6C9329AC4BC9B5, 64)
