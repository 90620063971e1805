"""Several containers in one instance: the program that starts them, and passes requests through them."""
