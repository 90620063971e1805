"""gRPC messages out of the payload of DATA frames."""

from halimede.core.buffers import POOL

PREFIX_SIZE = 5


class MessageTooLongError(Exception):
    """A message is longer than allowed, or than there is memory for."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class MessageReader:
    """A message that is not complete yet.

    Attributes:
        compressed: the message's flag, once the prefix is there.
        message: where its bytes go; None until the prefix is there.
        filled: how many are there.
    """

    __slots__ = ("_limit", "_prefix", "compressed", "filled", "message")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._prefix = b""
        self.compressed = False
        self.message: memoryview | None = None
        self.filled = 0

    def feed(self, chunk: memoryview) -> memoryview:
        """Take what belongs to the message; returns the rest.

        Raises:
            MessageTooLongError: the prefix announces more than allowed.
            ValueError: the prefix has an unknown flag.
        """
        if self.message is None:
            need = PREFIX_SIZE - len(self._prefix)
            self._prefix += chunk[:need]
            chunk = chunk[need:]
            if len(self._prefix) < PREFIX_SIZE:
                return chunk
            self.compressed, length = read_prefix(self._prefix, self._limit)
            if length <= len(chunk):
                # whole in what was received: no copy
                self.message = chunk[:length]
                self.filled = length
                return chunk[length:]
            try:
                # the last tensor ends with the message, so its end is what can be aligned
                self.message = POOL.take(length, length)
            except MemoryError:
                raise MessageTooLongError(f"There is no memory for a message of {length} bytes") from None
        taken = chunk[: len(self.message) - self.filled]
        self.message[self.filled : self.filled + len(taken)] = taken
        self.filled += len(taken)
        return chunk[len(taken) :]

    @property
    def complete(self) -> bool:
        """Whether the whole message is there."""
        return self.message is not None and self.filled == len(self.message)

    def room(self) -> memoryview:
        """Where the message's next bytes go."""
        return self.message[self.filled :] if self.message is not None else memoryview(b"")


def read_prefix(prefix: bytes, limit: int) -> tuple[bool, int]:
    """The compressed flag and the length in a message's prefix.

    Raises:
        MessageTooLongError: the length is beyond the limit.
        ValueError: the flag is neither 0 nor 1.
    """
    flag = prefix[0]
    length = int.from_bytes(prefix[1:5], "big")
    if flag > 1:
        raise ValueError(f"the compressed flag of a message is {flag}; it must be 0 or 1")
    if length > limit:
        raise MessageTooLongError(f"Received message larger than max ({length} vs. {limit})")
    return flag == 1, length
