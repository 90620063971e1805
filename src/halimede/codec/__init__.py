"""Tensors in JSON, read and written within limits, and the media types that say where JSON ends and bytes begin.

Servers use it, and the host for captured and shadowed requests. It knows no model and no protocol.
"""
