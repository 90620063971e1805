"""The response cache: requests that were answered before are answered without running the model."""
