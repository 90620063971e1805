"""A graph in a TensorFlow session, ready to run.

Of the ways to call a graph from Python, a session's callable costs least: 0.08 ms for a network of three small
layers, where `Session.run` takes 0.33 and a `ConcreteFunction` 0.48. With its variables made constants and its
operators run one after the other it takes 0.02.
"""

import logging
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Protocol

from halimede.backends.tensorflow.runtime import CallableOptions, tf, v1
from halimede.backends.tensorflow.settings import TensorFlowSettings
from halimede.backends.tensorflow.state import State, state_of
from halimede.core.errors import InvalidArgumentError

logger = logging.getLogger("halimede")

Call = Callable[..., Sequence[Any]]

_MAX_CONSTANT = 32 * 2**20
"""Bytes of variables up to which they become constants, of which a session holds several copies."""
_LARGEST_GRAPH = 2**31 - 2**24
"""Bytes of constants that fit into one graph, which protobuf bounds."""


class GraphFile(Protocol):
    """A model's files."""

    def graph(self) -> Any:
        """The `tf.Graph` for a session."""

    def load(self, session: Any) -> None:
        """Load what is not in the graph yet."""


class GraphSession:
    """A session that has its weights.

    Attributes:
        state: what of the graph's state the outputs depend on.
    """

    def __init__(self, session: Any, state: State) -> None:
        self._session = session
        self.state = state

    def callable(self, feeds: Sequence[str], fetches: Sequence[str]) -> Call:
        """What computes the tensors `fetches` from arrays, one for each of the tensors `feeds`."""
        options = CallableOptions(feed=feeds, fetch=fetches)
        call: Call = self._session._make_callable_from_options(options)  # noqa: SLF001 - there is no other way
        return call

    def close(self) -> None:
        """Give the weights back, as far as TensorFlow does."""
        self._session.close()


def open_session(
    name: str,
    file: GraphFile,
    settings: TensorFlowSettings,
    initial: Sequence[str],
    feeds: Sequence[str],
    fetches: Sequence[str],
) -> GraphSession:
    """The session of a graph.

    Args:
        name: the model's name.
        file: the model's files.
        settings: of the model.
        initial: names of the operations to run first.
        feeds: names in the graph of all inputs.
        fetches: names in the graph of all outputs.

    Raises:
        InvalidArgumentError: an operation of `initial` is not there.
        tensorflow.errors.OpError: TensorFlow refuses the graph or its weights.
    """
    _note_threads(name, settings.intra_threads)
    options = _options(settings)
    if settings.inter_threads > 1:
        return _open(name, file, settings.level, options, initial, feeds, fetches)
    options.experimental.executor_type = "SINGLE_THREADED_EXECUTOR"
    try:
        return _open(name, file, settings.level, options, initial, feeds, fetches)
    except (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError) as error:
        # loops, branches and variables of TensorFlow 1; what else may be wrong, the other executor says too
        logger.debug("model '%s': operators cannot simply run one after the other: %s", name, error.message)
    options.experimental.executor_type = ""
    return _open(name, file, settings.level, options, initial, feeds, fetches)


def _open(
    name: str,
    file: GraphFile,
    level: int,
    options: Any,
    initial: Sequence[str],
    feeds: Sequence[str],
    fetches: Sequence[str],
) -> GraphSession:
    graph = file.graph()
    session = v1.Session(graph=graph, config=options)
    try:
        file.load(session)
        for key in initial:
            session.run(_operation(name, graph, key))
        definition = graph.as_graph_def()
        opened = GraphSession(session, state_of(definition, fetches))
        most = _LARGEST_GRAPH if level > 0 else _MAX_CONSTANT if level == 0 else 0
        state = opened.state
        if state.has_variables and state.is_constant and state.variable_bytes <= most:
            constant = _with_constants(name, session, definition, options, feeds, fetches)
            if constant is not None:
                session.close()
                opened, session = GraphSession(constant, state), constant
        opened.callable(feeds, fetches)
    except BaseException:
        session.close()
        raise
    return opened


def _with_constants(
    name: str, session: Any, definition: Any, options: Any, feeds: Sequence[str], fetches: Sequence[str]
) -> Any:
    """A session of the same graph with the values of its variables in it; None if there is no such graph."""
    outputs = list(dict.fromkeys(key.partition(":")[0] for key in fetches))
    try:
        frozen = v1.graph_util.convert_variables_to_constants(session, definition, outputs)
    except (KeyError, NotImplementedError, TypeError, ValueError) as error:
        logger.info("model '%s': its variables stay variables, which is slower: %s", name, error)
        return None
    left = {node.name for node in frozen.node}
    if any(key.partition(":")[0] not in left for key in feeds):
        return None  # nothing depends on that input, and yet requests bring it
    graph = tf.Graph()
    with graph.as_default():
        v1.import_graph_def(frozen, name="")
    return v1.Session(graph=graph, config=options)


def _operation(name: str, graph: Any, key: str) -> Any:
    try:
        return graph.get_operation_by_name(key)
    except (KeyError, ValueError) as error:
        msg = f"unable to load model '{name}': TF_INIT_OPS_FILE names the operation '{key}', which the graph lacks"
        raise InvalidArgumentError(msg) from error


def _options(settings: TensorFlowSettings) -> Any:
    one = settings.inter_threads == 1
    options = v1.ConfigProto(
        allow_soft_placement=settings.soft_placement,
        device_count={"GPU": 0},
        intra_op_parallelism_threads=settings.intra_threads,
        # below 0: on the caller's thread
        inter_op_parallelism_threads=-1 if one else settings.inter_threads,
        use_per_session_threads=settings.own_threads and not one,
    )
    if settings.level < 0:
        options.graph_options.rewrite_options.disable_meta_optimizer = True
        options.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    return options


_threads = 0
_threads_lock = Lock()


def _note_threads(name: str, wanted: int) -> None:
    """The first session of a process sets the threads of an operator for all."""
    global _threads
    with _threads_lock:
        _threads = _threads or wanted
    if wanted != _threads:
        logger.warning(
            "model '%s': TF_NUM_INTRA_THREADS %d has no effect: those threads are the whole process's, and the first "
            'model has set %d; the parameter isolation: "process" gives a model its own',
            name,
            wanted,
            _threads,
        )
