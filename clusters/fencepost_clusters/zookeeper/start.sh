#!/bin/sh
# Writes the number of a member of an ensemble to its disk, then becomes the server.
set -eu
mkdir -p "$DATA" tmp
[ -z "$NUMBER" ] || printf '%s\n' "$NUMBER" >"$DATA/myid"
for jar in "$ZOOKEEPER_HOME"/lib/*.jar; do
  CLASSPATH="${CLASSPATH:+$CLASSPATH:}$jar"
done
export CLASSPATH
# The words in JVM_OPTIONS are meant to be split.
exec "$JAVA" $JVM_OPTIONS "-XX:SharedArchiveFile=$ARCHIVE" \
  -Dlogback.configurationFile=logback.xml org.apache.zookeeper.server.quorum.QuorumPeerMain zoo.cfg
