"""Embeddings of texts of mixed length: this server, sentence-transformers behind FastAPI, and a bare loop."""
