"""gRPC over HTTP/2 on an asyncio protocol of our own. No engine in it."""
