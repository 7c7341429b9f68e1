"""The decisions of a node, without sockets, files, clock or randomness: it takes inputs and returns
effects.

See docs/decisions/37-cores.md."""
