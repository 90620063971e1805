"""Python models, ready to be served, and clients of them."""
