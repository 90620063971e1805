"""`python -m halimede` is the command `halimede`."""

from halimede.cli.main import main

main()
