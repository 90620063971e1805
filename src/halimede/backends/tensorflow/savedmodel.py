"""SavedModels: directories with graphs, chosen by tags, whose signatures say what a model takes and gives."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from halimede.backends.file_looks import note
from halimede.backends.tensorflow.errors import plain_text
from halimede.backends.tensorflow.ports import GraphTensor, GraphTensors
from halimede.backends.tensorflow.runtime import SavedModelProto, tf, v1
from halimede.backends.tensorflow.settings import TensorFlowSettings
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError, NotFoundError

USUAL = "serving_default"
_INTERNAL = ("__saved_model_init_op", "__saved_model_train_op")


class SavedModel:
    """A SavedModel's graph and signature, as the settings choose them."""

    def __init__(self, name: str, path: Path, settings: TensorFlowSettings) -> None:
        """Read the directory's description, not its weights.

        Raises:
            NotFoundError: it is no SavedModel.
            InvalidArgumentError: it cannot be read, or has no such graph or signature.
        """
        self._path = path
        self._tags = settings.tags
        where = f"unable to load model '{name}': the SavedModel {path}"
        graph = _graph(where, _read(name, path), settings.tags)
        signature = _signature(where, graph.signature_def, settings.signature)
        self._tensors = GraphTensors(_tensors(signature.inputs), _tensors(signature.outputs))

    def tensors(self, config: ModelConfig) -> GraphTensors:
        """What the signature says."""
        return self._tensors

    def graph(self) -> Any:
        """A graph for a session, still empty."""
        return tf.Graph()

    def load(self, session: Any) -> None:
        """Load graph and weights into the session, and run what initialises the model."""
        with session.graph.as_default():
            v1.saved_model.loader.load(session, list(self._tags), str(self._path))


def _read(name: str, path: Path) -> Any:
    model = SavedModelProto()
    binary, text = path / "saved_model.pb", path / "saved_model.pbtxt"
    file = binary if binary.is_file() or not text.is_file() else text
    if not file.is_file():
        msg = (
            f"unable to load model '{name}': there is no file {binary}; expected a SavedModel there, a directory "
            f"as tf.saved_model.save and Keras' model.export write it. The setting default_model_filename names "
            f'another directory; a frozen graph needs platform: "tensorflow_graphdef"'
        )
        raise NotFoundError(msg)
    try:
        if file is binary:
            model.ParseFromString(file.read_bytes())
        else:
            text_format.Parse(file.read_text(), model)
    except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        reason = f"{plain_text(error)}{note(file)}"
        msg = f"unable to load model '{name}': {file} is no SavedModel, or cut short: {reason}"
        raise InvalidArgumentError(msg) from error
    return model


def _graph(where: str, model: Any, tags: tuple[str, ...]) -> Any:
    for graph in model.meta_graphs:
        if sorted(graph.meta_info_def.tags) == list(tags):
            return graph
    if not model.meta_graphs:
        raise InvalidArgumentError(f"{where} has no graph in it: saved_model.pb is empty")
    found = "; ".join(",".join(sorted(graph.meta_info_def.tags)) or "(none)" for graph in model.meta_graphs)
    msg = (
        f"{where} has no graph with the tags '{','.join(tags)}'; the tags of its graphs are: {found}. The parameter "
        f"'TF_GRAPH_TAG' chooses"
    )
    raise InvalidArgumentError(msg)


def _signature(where: str, signatures: Mapping[str, Any], wanted: str | None) -> Any:
    """The signature of that name; without one, the usual one, or the only one."""
    usable = sorted(key for key in signatures if key not in _INTERNAL)
    key = wanted or (usable[0] if len(usable) == 1 else USUAL)
    if key in usable:
        return signatures[key]
    known = f"its signatures are: {', '.join(usable)}" if usable else "it has none"
    msg = f"{where} has no signature '{key}'; {known}. The parameter 'TF_SIGNATURE_DEF' chooses"
    raise InvalidArgumentError(msg)


def _tensors(infos: Mapping[str, Any]) -> dict[str, GraphTensor]:
    return {name: _tensor(name, infos[name]) for name in sorted(infos)}


def _tensor(name: str, info: Any) -> GraphTensor:
    encoding = info.WhichOneof("encoding")
    if encoding != "name":
        kind = "a sparse tensor" if encoding == "coo_sparse" else "no plain tensor"
        refusal = f"'{name}' of the model is {kind}, which requests cannot have; export it as a dense one"
        return GraphTensor("", 0, None, refusal)
    shape = None if info.tensor_shape.unknown_rank else _sizes(dim.size for dim in info.tensor_shape.dim)
    return GraphTensor(info.name, info.dtype, shape)


def _sizes(sizes: Iterable[int]) -> tuple[int, ...]:
    return tuple(size if size >= 0 else -1 for size in sizes)
