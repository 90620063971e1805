"""One version of a model, loaded: its scheduler, its instances, its counts, and what is in flight."""
