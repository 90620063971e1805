"""Models small enough to check by hand."""
