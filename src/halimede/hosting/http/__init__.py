"""HTTP/1.1 for a proxy: bodies are passed on as they come, and whoever reads slowly slows down whoever writes."""
