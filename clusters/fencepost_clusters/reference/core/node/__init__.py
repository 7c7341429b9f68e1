"""Parts of the nodes of every plane: inputs and effects, settings, rights."""
