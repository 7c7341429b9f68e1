#!/bin/sh
# While an image is built: runs one node of the Kafka in the folder $1 until it has started, and archives
# there the classes that it loads, which are half of a start's cost. With a second word the folder gets the
# metadata of a formatted disk, too.
set -eu
home=$1
for tool in base64 cp grep mkdir mv sleep; do
  command -v "$tool" >/dev/null || { echo "there is no $tool"; exit 1; }
done
# A version without KRaft cannot start alone, so it has no archive.
[ $# -gt 1 ] || ls "$home"/*.checkpoint >/dev/null 2>&1 || exit 0
cd "$(dirname "$0")"
unset JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS
CLASSPATH=
for jar in "$home"/lib/*.jar; do
  CLASSPATH="${CLASSPATH:+$CLASSPATH:}$jar"
done
export CLASSPATH
cat >server.properties <<TEXT
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
listeners=CLIENT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=CLIENT
log.cleaner.dedupe.buffer.size=4194304
log.dirs=$PWD/data
TEXT
options="-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile=log4j2.properties"
# The words in options are meant to be split.
java $options kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAZQ -c server.properties
if [ $# -gt 1 ]; then
  # The second one from 4.4 on.
  for made in data/bootstrap.checkpoint data/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint; do
    [ ! -e "$made" ] || { cp "$made" "$home"; break; }
  done
fi
java $options -XX:ArchiveClassesAtExit="$home/classes.jsa" kafka.Kafka server.properties >log 2>&1 &
node=$!
until grep -q "Kafka Server started" log; do
  kill -0 "$node" || { tail -n 15 log; exit 1; }
  sleep 1
done
kill "$node"
wait "$node" || true
rm -r data
# A Java that came without an archive of its own makes none; its nodes start without one.
test -s "$home/classes.jsa" || echo "no classes were archived"
