"""The promises of topics' administration: placement, reassignment and deletion."""
