"""Translation with a T5 model of `transformers` inside a Python model: text in, text out."""
