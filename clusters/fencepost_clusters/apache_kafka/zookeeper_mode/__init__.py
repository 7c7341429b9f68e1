"""Apache Kafka in ZooKeeper mode, as `apache/zookeeper`: brokers over servers of ZooKeeper."""
