"""How the tests are run: `run` runs them all, `stress` runs some again and again in the way of others."""
