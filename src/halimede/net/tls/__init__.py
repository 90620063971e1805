"""TLS: certificates, handshakes, and the encryption of connections."""
