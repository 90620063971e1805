"""Every framework behind this server, beside its own bare call in a loop.

A framework is imported only in processes of its own, which build the models (`build`) and run them (`bare`).
"""
