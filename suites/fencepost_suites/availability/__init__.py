"""Promises of availability, with bounds from the configuration: rules over what clients felt, and
over committed metadata. No node's own word about its state acquits it."""
