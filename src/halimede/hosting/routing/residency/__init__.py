"""Multi-model variants: which models their instances hold, and making room for those that are asked for."""
