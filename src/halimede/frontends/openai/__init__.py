"""The front end that speaks OpenAI's API: chat, completions and embeddings over any backend."""
