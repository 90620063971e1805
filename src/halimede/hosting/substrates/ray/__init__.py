"""Instances on the nodes of a Ray cluster.

    host ── messages ── engine process (Ray's driver) ── actor on a node ── the instance's process
      └──────────────────── HTTP, straight to the instance ──────────────────────┘

Ray places actors, tells when one has died, and carries logs and measurements; no request for a model goes through it.
Ray's driver is a process of its own: it ends when the cluster's head is gone for a minute, which the host outlives.
"""
