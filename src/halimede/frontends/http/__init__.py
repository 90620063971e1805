"""KServe v2 over HTTP/1.1, on our own asyncio protocol."""
