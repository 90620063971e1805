"""What programs import from `halimede`: serving models from Python."""
