"""What replication promises: logs, watermarks, in-sync replicas, leadership and failover."""
