"""Why a job fails, as its `FailureReason` says."""


class TransformError(Exception):
    """An object cannot be transformed, or none can.

    Attributes:
        kind: ``ClientError``, ``AlgorithmError`` or ``InternalServerError``: whose fault it is.
        message: what is wrong, and with what.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message

    @property
    def reason(self) -> str:
        """Both, as AWS writes them."""
        return f"{self.kind}: {self.message}"


def client_error(message: str) -> TransformError:
    """The job's input or its settings are wrong."""
    return TransformError("ClientError", message)


class JobError(TransformError):
    """Nothing more of the job can be done."""
