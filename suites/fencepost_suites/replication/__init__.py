"""The promises of replication: logs, watermarks, in-sync replicas, leadership and failover."""
