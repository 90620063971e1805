"""TraceSetting: which requests are traced, read and changed while the server runs."""

from halimede.engine.engine import Engine
from halimede.frontends import trace_settings as settings
from halimede.frontends.grpc import kserve_pb2 as pb


def trace_setting(engine: Engine, request: pb.TraceSettingRequest) -> pb.TraceSettingResponse:
    """Change what the request names, which may be nothing; all settings as they are then.

    A setting without a value is taken back.

    Raises:
        InvalidArgumentError: no such model is loaded, a value is wrong, or nothing could be traced; nothing is changed.
        UnsupportedError: the file was to be changed.
    """
    changes = {name: list(setting.value) or None for name, setting in request.settings.items()}
    settings.change(engine, request.model_name, changes)
    response = pb.TraceSettingResponse()
    for name, value in settings.document(engine, request.model_name):
        response.settings[name].value.extend([value] if isinstance(value, str) else value)
    return response
