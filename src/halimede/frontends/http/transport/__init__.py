"""HTTP/1.1: connections, and the requests and responses on them."""
