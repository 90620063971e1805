"""What instances use of the machine that they run on."""
