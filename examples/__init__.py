"""Example models; `python -m examples.build DIRECTORY` writes a model repository of them."""
