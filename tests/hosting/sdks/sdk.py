"""What notebooks use of the SageMaker SDK, which SDK 2 and SDK 3 have in different modules."""

from importlib.metadata import version

if version("sagemaker").startswith("2."):
    from sagemaker import Session, get_execution_role, image_uris
    from sagemaker.processing import ScriptProcessor
    from sagemaker.s3 import S3Uploader
    from sagemaker.utils import name_from_base
else:
    from sagemaker.core import image_uris
    from sagemaker.core.common_utils import name_from_base
    from sagemaker.core.helper.session_helper import Session, get_execution_role
    from sagemaker.core.processing import ScriptProcessor
    from sagemaker.core.s3 import S3Uploader

__all__ = ["S3Uploader", "ScriptProcessor", "Session", "get_execution_role", "image_uris", "name_from_base"]
