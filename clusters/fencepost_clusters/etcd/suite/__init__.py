"""Tests of what etcd promises, while faults of the framework's own plugins disturb it.

fencepost run --system etcd/cluster
pytest --pyargs fencepost_clusters.etcd.suite --fencepost-system etcd/cluster
"""
