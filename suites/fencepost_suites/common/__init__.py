"""Shared by several families of promises: keys, facts that rules fold, and shapes of clusters."""
