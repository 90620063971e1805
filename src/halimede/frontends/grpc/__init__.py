"""KServe v2 over gRPC, on our own HTTP/2 transport."""
