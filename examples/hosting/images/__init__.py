"""Programs that stand for images."""
