"""Backend `transformers`: any causal language model that the package `transformers` loads."""
