"""Tests of etcd's promises under faults of the framework's own plugins.

fencepost run --system etcd/cluster
pytest --pyargs fencepost_clusters.etcd.suite --fencepost-system etcd/cluster
"""
