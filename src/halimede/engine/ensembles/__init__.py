"""Ensembles: models made of others. A plan is made when one is loaded; each request then runs along it."""
