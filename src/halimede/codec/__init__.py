"""Tensors in JSON, read and written within limits, and the media types that say where JSON ends and bytes begin.

Servers, and what the host does with captured and shadowed requests, use it. It knows no model and no protocol.
"""
