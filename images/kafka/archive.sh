#!/bin/sh
# Runs one node of Kafka until it has started, to archive the classes it loads: half of a start's cost.
set -eu
# A version without KRaft cannot start alone, so it has no archive.
ls /opt/kafka/*.checkpoint >/dev/null 2>&1 || exit 0
cd /tmp/archive
for jar in /opt/kafka/lib/*.jar; do
  CLASSPATH="${CLASSPATH:+$CLASSPATH:}$jar"
done
export CLASSPATH
cat >server.properties <<'TEXT'
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
listeners=CLIENT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=CLIENT
log.cleaner.dedupe.buffer.size=4194304
log.dirs=/tmp/archive/data
TEXT
options="-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile=log4j2.properties"
# The words in options are meant to be split.
java $options kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAZQ -c server.properties
java $options -XX:ArchiveClassesAtExit=/opt/kafka/classes.jsa kafka.Kafka server.properties >log 2>&1 &
node=$!
until grep -q "Kafka Server started" log; do
  kill -0 "$node" || { tail -n 15 log; exit 1; }
  sleep 0.2
done
kill "$node"
wait "$node" || true
test -s /opt/kafka/classes.jsa
