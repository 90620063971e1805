"""Our own requests, sent to tritonserver 2.51 and to this server, whose answers are compared; docs/conformance.md."""
