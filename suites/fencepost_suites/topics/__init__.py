"""What the administration of topics promises: placement, reassignment and deletion."""
