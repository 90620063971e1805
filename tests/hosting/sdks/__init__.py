"""AWS's SDKs and the host."""
