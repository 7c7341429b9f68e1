#!/bin/sh
# Formats the disk, unless that was done, as Kafka's StorageTool does; then becomes the node.
set -eu
mkdir -p tmp
# An image may have them: each JVM takes them for options of its own, the last one over any that is given.
unset JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS
if [ ! -e "$DATA/meta.properties" ]; then
  # Up to Kafka 4.3; later releases have its records in the snapshot below.
  if [ -e bootstrap.base64 ]; then
    base64 -d bootstrap.base64 >"$DATA/bootstrap.checkpoint"
  elif [ -e "$KAFKA_HOME/bootstrap.checkpoint" ]; then
    cp "$KAFKA_HOME/bootstrap.checkpoint" "$DATA/bootstrap.checkpoint"
  fi
  # A first voter begins with the voters of the quorum: a snapshot that ends at offset 0, in epoch 0.
  if [ -e snapshot.base64 ]; then
    mkdir -p "$DATA/__cluster_metadata-0"
    base64 -d snapshot.base64 >"$DATA/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
  fi
  cp meta.properties "$DATA/meta.properties.new"
  mv "$DATA/meta.properties.new" "$DATA/meta.properties"
fi
for jar in "$KAFKA_HOME"/lib/*.jar; do
  CLASSPATH="${CLASSPATH:+$CLASSPATH:}$jar"
done
export CLASSPATH
# The words in JVM_OPTIONS are meant to be split.
exec "$JAVA" $JVM_OPTIONS "-XX:SharedArchiveFile=$ARCHIVE" "-javaagent:$AGENT" \
  -Dlog4j2.configurationFile=log4j2.properties kafka.Kafka server.properties
