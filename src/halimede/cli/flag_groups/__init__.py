"""The flags of `halimede serve`, a class of options for each group."""
