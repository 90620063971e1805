"""What these tests keep on disk is in memory: nothing is shown of the disk, which each write would wait for."""

from tests.support.memory import tmp_path

__all__ = ["tmp_path"]
