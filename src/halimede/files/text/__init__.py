"""Directories of text models, as `sentence-transformers` and `transformers` save them, as ensembles."""
