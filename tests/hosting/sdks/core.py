"""The modules of sagemaker-core: a package of its own beside SDK 2, and a part of SDK 3."""

from importlib.metadata import version

if version("sagemaker").startswith("2."):
    from sagemaker_core import resources, shapes
    from sagemaker_core.helper import session_helper
else:
    from sagemaker.core import resources, shapes
    from sagemaker.core.helper import session_helper

__all__ = ["resources", "session_helper", "shapes"]
