"""KIP-343: incarnations, heartbeats to the controller, and ISR changes by request."""
