"""Who asks, and what they may do: keys, signatures, roles and permissions."""
