"""Whether predictions can be served, once the models have loaded."""

from halimede.engine.engine import Engine
from halimede.frontends.http.default_model import standalone_models
from halimede.frontends.vertex.settings import DEFAULT_MODEL_FLAG


def default_model_problem(engine: Engine, name: str) -> str:
    """Why predictions that name no model cannot be served; "" if they can.

    Args:
        engine: what has the models.
        name: the default model, "" for the only one there is.
    """
    if name and name not in {model.name for model in engine.lifecycle.loaded_models()}:
        problem = f"Expect the default model '{name}' is loaded"
    elif not name and len(standalone_models(engine)) != 1:
        problem = (
            "Expect the model repository contains only a single model if default model is not specified; specify it "
            f"with {DEFAULT_MODEL_FLAG}"
        )
    else:
        return ""
    return f"failed to start Vertex AI service: Invalid argument - {problem}"
