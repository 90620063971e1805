"""What the log says of models that were given one by one: what each was taken for, and what it takes and gives."""

import logging
from collections.abc import Sequence

from halimede.cli.logs import log_table
from halimede.cli.process import Process
from halimede.cli.tables import table
from halimede.config.signature import TensorSpec
from halimede.core.errors import HalimedeError
from halimede.engine.engine import Engine
from halimede.engine.served_model import ServedModel
from halimede.files.repository import Made

logger = logging.getLogger("halimede")


class Reporter(Process):
    """Logs what has become of the given models once they have loaded."""

    def __init__(self, models: Sequence[Made]) -> None:
        self._models = models

    def loaded(self, engine: Engine, *, all_ready: bool) -> None:
        """Log a table of them."""
        rows = [_row(made, _find(engine, made.name)) for made in self._models]
        log_table(logger, "Given", table(("Model", "Given", "Taken for", "Batch", "Inputs", "Outputs"), rows))


def _find(engine: Engine, name: str) -> ServedModel | None:
    try:
        return engine.find(name)
    except HalimedeError:
        return None


def _row(made: Made, model: ServedModel | None) -> tuple[str, ...]:
    if model is None:
        return made.name, made.source, made.kind, "", "", "not loaded"
    signature = model.signature
    batch = str(signature.max_batch_size) if signature.max_batch_size else "no"
    outputs = _tensors(list(signature.outputs.values()), signature.max_batch_size)
    return (
        made.name,
        made.source,
        made.kind,
        batch,
        _tensors(list(signature.inputs.values()), signature.max_batch_size),
        f"{outputs}\n(any number of responses)" if signature.decoupled else outputs,
    )


def _tensors(specs: Sequence[TensorSpec], batch: int) -> str:
    return "\n".join(
        f"{each.name} {each.datatype} {[-1, *each.dims] if batch else list(each.dims)}"
        + (" (optional)" if each.optional else "")
        for each in specs
    )
