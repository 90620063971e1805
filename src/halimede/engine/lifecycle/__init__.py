"""Which models there are, and their coming and going."""
