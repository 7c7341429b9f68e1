"""What brokers promise: registration, leases, fencing, starting and stopping."""
