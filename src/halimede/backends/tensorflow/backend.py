"""TensorFlow models: SavedModels (`model.savedmodel`) and frozen graphs (`model.graphdef`).

Each instance has a process of its own unless the configuration says otherwise, as TensorFlow keeps the memory of the
models that it had. In one process, the instances of a model share one session.
"""

import json
from pathlib import Path
from threading import Lock

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.decoupled import refuse_decoupled
from halimede.backends.ports import check
from halimede.backends.tensorflow.errors import plain_text, tensorflow_error
from halimede.backends.tensorflow.graphdef import FrozenGraph
from halimede.backends.tensorflow.instance import TensorFlowInstance
from halimede.backends.tensorflow.ports import GraphTensors, complete
from halimede.backends.tensorflow.runtime import tf
from halimede.backends.tensorflow.savedmodel import SavedModel
from halimede.backends.tensorflow.session import GraphSession, open_session
from halimede.backends.tensorflow.settings import TensorFlowSettings
from halimede.config.sequence_tensors import as_backend_sees, backend_signature
from halimede.config.signature import Signature
from halimede.core.errors import HalimedeError, InvalidArgumentError, NotFoundError, UnsupportedError

GRAPHDEF = "tensorflow_graphdef"


class TensorFlowModel(BackendModel):
    """A SavedModel or a frozen graph."""

    def __init__(self, source: ModelSource, options: BackendOptions) -> None:
        super().__init__(source, options)
        config = source.config
        self._settings = TensorFlowSettings.of(config, options.settings, options.cpu_threads)
        self._load_libraries()
        default = "model.graphdef" if config.platform == GRAPHDEF else "model.savedmodel"
        path = source.version_directory / (config.default_model_filename or default)
        self._file: SavedModel | FrozenGraph
        if config.platform == GRAPHDEF:
            self._file = FrozenGraph(source.name, path)
        else:
            self._file = SavedModel(source.name, path, self._settings)
        self._sessions: list[GraphSession] = []
        self._instances = 0
        self._lock = Lock()

    def complete_config(self) -> None:
        """Fill in inputs, outputs and batching as the signature has them; a frozen graph says none of them."""
        if isinstance(self._file, SavedModel):
            config = self.source.config
            complete(config, self._file.tensors(config), self.options.settings)

    def check_config(self) -> None:
        """Hold the complete configuration against the model."""
        config = self.source.config
        refuse_decoupled(config)
        whole = as_backend_sees(config)
        check(config, self._file.tensors(whole).ports(whole))

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance, with a session of its own or a shared one."""
        config = self.source.config
        if spec.kind == "KIND_GPU":
            msg = (
                f"unable to load model '{config.name}': the TensorFlow backend runs on CPUs only; say KIND_CPU in "
                f"instance_group"
            )
            raise UnsupportedError(msg)
        signature = backend_signature(config)
        tensors = self._file.tensors(as_backend_sees(config))
        try:
            with self._lock:
                session = self._session(signature, tensors)
            instance = TensorFlowInstance(session, signature, tensors)
        except HalimedeError:
            raise
        except Exception as error:  # TensorFlow raises errors of its own and some of Python's
            names = (self.source.name, str(self.source.directory))
            raise tensorflow_error(error, names) from error
        instance.states = self.sequence_states()
        return instance

    def close(self) -> None:
        """Give up the sessions."""
        for session in self._sessions:
            session.close()
        self._sessions.clear()

    def _session(self, signature: Signature, tensors: GraphTensors) -> GraphSession:
        """The session for one more instance."""
        sharing = self._settings.sharing
        if not self._sessions or (sharing is not None and self._instances % sharing == 0):
            batch_inputs = [target for each in signature.batch_inputs for target in each.target_name]
            feeds = [tensors.inputs[name].key for name in (*signature.inputs, *batch_inputs)]
            fetches = [tensors.outputs[name].key for name in signature.outputs]
            name = self.source.name
            self._sessions.append(
                open_session(name, self._file, self._settings, self._initial(), feeds, fetches)
            )
        self._instances += 1
        return self._sessions[-1]

    def _initial(self) -> list[str]:
        """The operations that TF_INIT_OPS_FILE names."""
        name = self._settings.init_file
        if not name:
            return []
        where = (
            f"unable to load model '{self.source.name}': the file that the parameter 'TF_INIT_OPS_FILE' names"
        )
        places = [directory / name for directory in (self.source.version_directory, self.source.directory)]
        path = next((each for each in places if each.is_file()), None)
        if path is None:
            raise NotFoundError(f"{where} is not there: neither {places[0]} nor {places[1]}")
        try:
            content = json.loads(path.read_bytes())
        except ValueError as error:
            raise InvalidArgumentError(f"{where}, {path}, is no JSON: {error}") from error
        names = content.get("init_ops") if isinstance(content, dict) else None
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            msg = f'{where}, {path}, must be like {{"init_ops": ["init"]}}, a list of operations of the graph'
            raise InvalidArgumentError(msg)
        return names

    def _load_libraries(self) -> None:
        for library in self._settings.libraries:
            path = Path(self.source.directory) / library
            try:
                tf.load_op_library(str(path))
            except Exception as error:  # TensorFlow raises errors of its own and some of Python's
                msg = (
                    f"model '{self.source.name}': cannot load the custom operator library '{library}': "
                    f"{plain_text(error)}"
                )
                raise InvalidArgumentError(msg) from error
