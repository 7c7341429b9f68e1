"""Apache ZooKeeper: the server as software, what a node asks of it, a model of it, and a client.

The systems over ZooKeeper share it; it knows none of them.
"""
