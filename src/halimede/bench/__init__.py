"""Load on inference servers of any make, over the network, and what it shows: `halimede bench`."""
