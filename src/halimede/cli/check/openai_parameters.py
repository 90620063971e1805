"""The parameters of a configuration that are for OpenAI's API."""

from collections.abc import Iterator

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.signature import Signature
from halimede.config.validate import Problem
from halimede.frontends.openai.profile import ParameterError, read_profile


def openai_problems(config: ModelConfig) -> Iterator[Problem]:
    """What is wrong with the ``openai.`` parameters of a complete configuration; the model loads nonetheless."""
    try:
        read_profile(config.name, config, Signature.from_config(config))
    except ParameterError as error:
        yield Problem(config.name, f'parameters["{error.parameter}"].string_value', error.message)
