"""etcd as a system under test, written as a third party would write it."""
