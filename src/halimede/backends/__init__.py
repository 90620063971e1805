"""One module a framework. A backend sees a batch of tensors, not the network."""
