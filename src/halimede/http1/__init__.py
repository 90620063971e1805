"""HTTP/1.1 for both sides, servers and clients: heads of messages, chunked bodies, timers. Knows no route."""
