"""Repository agents: code that checks a model's files, or replaces them, before the model is loaded."""
