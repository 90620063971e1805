"""Bodies of inference requests and responses, from and to tensors."""
