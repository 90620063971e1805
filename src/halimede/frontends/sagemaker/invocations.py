"""``/invocations``: inference on the one model of an endpoint."""

from halimede.codec.sagemaker_media_type import json_length, label
from halimede.core.errors import InvalidArgumentError, NotFoundError, NotLoadedError
from halimede.engine.engine import Engine
from halimede.frontends.http.answers import BackgroundAnswers, respond_error
from halimede.frontends.http.default_model import DefaultModel
from halimede.frontends.http.dialect import Dialect
from halimede.frontends.http.generate import Generate
from halimede.frontends.http.inference import Inference
from halimede.frontends.http.routes import Call, Route
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.sagemaker.demand import Serve, load_and_serve
from halimede.frontends.sagemaker.settings import DEFAULT_MODEL, InferenceType, SagemakerSettings
from halimede.frontends.sagemaker.text_calls import TextCalls


class Invocations:
    """Serves the call.

    Args:
        engine: what runs requests.
        settings: which model it is for, and what is done with it.
        background: answers that wait for the model.
    """

    def __init__(self, engine: Engine, settings: SagemakerSettings, background: BackgroundAnswers) -> None:
        self._engine = engine
        self._model = DefaultModel(engine, settings.default_model, DEFAULT_MODEL, "/invocations")
        self._serve = _serve(engine, settings, background)
        self._background = background

    def invoke(self, exchange: Exchange) -> None:
        """Answer, now or later.

        Raises:
            HalimedeError: the request is answered with this.
        """
        name = self._model.find()
        try:
            self._serve(exchange, name)
        except NotLoadedError:
            self._background.answer(exchange, load_and_serve(self._engine, exchange, name, self._serve))
        except NotFoundError as error:
            raise self._why_not_found(name, error) from None

    def _why_not_found(self, name: str, error: NotFoundError) -> NotFoundError | InvalidArgumentError:
        """The error for a model that cannot be served: one that nobody knows is the endpoint's mistake (400)."""
        try:
            self._engine.lifecycle.versions(name)
        except NotFoundError:
            return InvalidArgumentError(error.message)
        return error


def _serve(engine: Engine, settings: SagemakerSettings, background: BackgroundAnswers) -> Serve:
    """What is done with a request."""
    dialect = Dialect(json_length, label, compression=False, respond_error=respond_error)
    if settings.inference_type is InferenceType.INFER:
        infer = Inference.of(engine, settings, dialect).infer
        return TextCalls(engine, settings, background, respond_error, infer).serve
    generate = Generate(
        engine,
        settings.max_input_size,
        settings.forward_pattern,
        dialect,
        settings.decoders,
        settings.max_output_size,
    )
    if settings.inference_type is InferenceType.GENERATE:
        return lambda exchange, name: generate.generate(exchange, Route(Call.GENERATE, name))
    return lambda exchange, name: generate.generate_stream(exchange, Route(Call.GENERATE_STREAM, name))
