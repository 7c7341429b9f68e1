"""KIP-380: control requests and controlled shutdowns carry the broker epoch of one process."""
