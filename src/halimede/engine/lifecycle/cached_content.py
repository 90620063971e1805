"""What a version's responses depend on, for caches that outlive it."""

from collections.abc import Iterable

from halimede.engine.lifecycle.version_states import Serving
from halimede.repository.basis import Basis


def content_of(basis: Basis | None, uses: Iterable[Serving] = ()) -> bytes | None:
    """Names, sizes and times of modification of a version's files, and its configuration; wherever they lie.

    Args:
        basis: what the version was loaded from.
        uses: the versions that an ensemble sends its requests to, on which its responses depend too.

    Returns:
        the same bytes for the same content; None if it is not known.
    """
    if basis is None:
        return None
    parts: list[bytes] = [*basis.files, basis.config]
    for serving in uses:
        part = content_of(serving.basis, serving.uses)
        if part is None:
            return None
        parts.append(part)
    return repr(parts).encode()
