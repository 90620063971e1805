"""The same small function, served by Halimede and by others: lines of code, and speed."""
