"""Trees between Python models: a row of measurements as text in, a diagnosis with its confidence out."""
