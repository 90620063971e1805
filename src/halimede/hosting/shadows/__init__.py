"""Shadow variants: copies of a production variant's requests, sent where nobody waits for them, and compared."""
