"""The cluster's metadata and the decisions about it, in every plane that has a controller."""
