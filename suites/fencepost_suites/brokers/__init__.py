"""The promises of brokers: registration, leases, fencing, starting and stopping."""
