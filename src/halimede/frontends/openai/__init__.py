"""The front end that speaks OpenAI's API: chat, completions, responses and embeddings over any backend."""
