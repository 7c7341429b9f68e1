"""Nodes in containers: the engine, the pods, and the backend over them."""
