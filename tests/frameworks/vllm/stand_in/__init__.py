"""A directory for PYTHONPATH: its package `vllm` has the calls of vLLM's that models and backends make, and no model.

Its engine repeats the prompt. Tokens are the bytes of UTF-8, after three special ones.
"""
