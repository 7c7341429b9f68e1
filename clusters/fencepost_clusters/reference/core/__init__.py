"""What a node decides: no sockets, no files, no clock, no chance. Inputs in, effects out."""
