"""What models take of the memory, and making room for them."""
