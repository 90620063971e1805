"""How an update reaches an endpoint: what its policy asks for, and which step follows which."""
