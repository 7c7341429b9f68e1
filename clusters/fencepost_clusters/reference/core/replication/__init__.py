"""The data plane: replicas, producing, fetching and following."""
