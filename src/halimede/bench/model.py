"""What a server says of a model."""

from dataclasses import dataclass

from halimede.bench.errors import BenchError


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output of a model.

    Attributes:
        name: as requests name it.
        datatype: of KServe, such as `FP32`.
        shape: with the batch dimension if the model has one; -1 for a size that varies.
        optional: requests may leave it out.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """A model to be measured.

    Attributes:
        name: as requests name it.
        version: empty for the server's choice.
        inputs: what requests bring.
        outputs: what responses bring.
        max_batch_size: 0 if the model does not batch.
        decoupled: a request may have any number of responses.
        sequences: requests belong to sequences.
    """

    name: str
    version: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    max_batch_size: int = 0
    decoupled: bool = False
    sequences: bool = False

    def check_batch(self, size: int) -> None:
        """Return if requests may be of this batch size.

        Raises:
            BenchError: they may not.
        """
        if size < 1:
            raise BenchError(f"A batch size of {size} is not possible: it is 1 or more")
        if size > 1 and not self.max_batch_size:
            raise BenchError(f"Model '{self.name}' does not batch (max_batch_size: 0): leave out -b {size}")
        if size > self.max_batch_size > 0:
            raise BenchError(
                f"Model '{self.name}' takes batches of up to {self.max_batch_size}: -b {size} is too large"
            )
