"""What runs on a node of a cluster."""
