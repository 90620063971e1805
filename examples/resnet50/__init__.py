"""ResNet-50 in several formats, compared."""
