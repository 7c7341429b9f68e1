"""What the nodes of every plane have: inputs and effects, settings, rights."""
