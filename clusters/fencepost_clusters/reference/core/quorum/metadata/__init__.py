"""The replicated metadata: its image, its features, its snapshots."""
