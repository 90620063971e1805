"""What a server of any protocol stands on: listening sockets, TLS, and limits of connections and memory.

* `server`: opens the sockets of endpoints, and closes them without breaking off an answer.
* `connection_limit`: how many connections an endpoint may have, and what one too many is told.
* `receiving`: the one memory budget of requests, `ReceiveBudget`; what is received waits in a `line` for its room.
* `unsent`: answers that clients do not read, which count in that budget.
* `tls`: certificates, handshakes and encrypted connections.
* `file_watch`: files that are read again when they change.

HTTP/1 (`http1`, `frontends/http`, `hosting/http`) and HTTP/2 (`frontends/grpc/transport`) are built on it. It knows no
protocol's messages. All of it is for the thread of the event loop.
"""
