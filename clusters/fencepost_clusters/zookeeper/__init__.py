"""Apache ZooKeeper: its server, the requests of a node to it, a model of it, and a client.

The systems over ZooKeeper share this package, which imports none of them.
"""
