"""Who may create models whose image is the path of a program, and so run any program of this machine."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from halimede.hosting.errors import ApiError

_CREATE = "sagemaker:CreateModel"


class ProgramImages(Enum):
    """From whom paths of programs are accepted as images."""

    LOOPBACK = "loopback"
    ALL = "all"
    NONE = "none"


class ProgramImageGate:
    """Refuses models whose image is the path of a program.

    Args:
        allowed: from whom they are accepted.
        is_program: whether an image is the path of a program, and no rule says what it stands for.
    """

    def __init__(self, allowed: ProgramImages, is_program: Callable[[str], bool]) -> None:
        self._allowed = allowed
        self._is_program = is_program

    def check(self, action: str, document: Mapping[str, Any], *, from_loopback: bool) -> None:
        """Refuse an operation that asks for a program, if its client may not.

        Args:
            action: service and operation, such as ``sagemaker:CreateModel``.
            document: the request of it.
            from_loopback: the client is on this machine.

        Raises:
            ApiError: it may not (``AccessDeniedException``).
        """
        if action != _CREATE or self._allowed is ProgramImages.ALL:
            return
        if self._allowed is ProgramImages.LOOPBACK and from_loopback:
            return
        for container in (document.get("PrimaryContainer", {}), *document.get("Containers", ())):
            image = container.get("Image", "")
            if self._is_program(image):
                if self._allowed is ProgramImages.NONE:
                    why = "this host takes no paths of programs as images (--allow-program-images=none)"
                else:
                    why = (
                        "this host takes paths of programs as images from its own machine only; start it with "
                        "--allow-program-images=all to take them from others, or name the program in --image-rules"
                    )
                raise ApiError(
                    "AccessDeniedException", f"the image '{image}' is the path of a program: {why}", 403
                )
