"""Search for the settings with which a model serves best: `halimede tune`."""
