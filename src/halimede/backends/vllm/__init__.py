"""Backend `vllm`: language models on vLLM's asynchronous engine."""
