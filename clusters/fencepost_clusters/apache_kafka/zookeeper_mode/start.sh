#!/bin/sh
# Becomes a broker, which makes the files of its disk itself.
set -eu
mkdir -p tmp
# A broker whose id is registered already ends at once. The registration of a process that was killed
# lasts as long as its session.
if [ -e "$DATA/meta.properties" ] && [ ! -e "$DATA/.kafka_cleanshutdown" ]; then
  sleep "$SESSION_S"
fi
for jar in "$KAFKA_HOME"/lib/*.jar; do
  CLASSPATH="${CLASSPATH:+$CLASSPATH:}$jar"
done
export CLASSPATH
# The words in JVM_OPTIONS are meant to be split.
exec "$JAVA" $JVM_OPTIONS "-XX:SharedArchiveFile=$ARCHIVE" "-javaagent:$AGENT" \
  -Dlog4j2.configurationFile=log4j2.properties kafka.Kafka server.properties
