"""Which line of a log tells why its program ended."""

from __future__ import annotations

import pytest

from fencepost import last_words

KAFKA = (
    "@17 INFO kafka.server.BrokerServer [BrokerServer id=3] Starting broker\n"
    "@21 ERROR kafka.Kafka$ Exiting Kafka due to fatal exception \\ "
    "java.lang.RuntimeException: No readable meta.properties files found.\\n"
    "\tat org.apache.kafka.metadata.properties.MetaPropertiesEnsemble.verify(M.java:507)\\n"
    "\tat kafka.Kafka.main(Kafka.scala)\n"
    "@22 INFO org.apache.kafka.common.utils.AppInfoParser App info kafka.server unregistered\n"
)
CAUSED = (
    "java.lang.reflect.InvocationTargetException\n"
    "\tat java.base/java.lang.reflect.Method.invoke(Method.java:569)\n"
    "Caused by: java.nio.file.InvalidPathException: Malformed input: j??rg\n"
    "\tat java.base/sun.nio.fs.UnixPath.encode(UnixPath.java:121)\n"
    "\t... 6 more\n"
    '*** java.lang.instrument ASSERTION FAILED ***: "!errorOutstanding"\n'
    "FATAL ERROR in native method: processing of -javaagent failed, processJavaStart failed\n"
)
JVM = (
    "Picked up JAVA_TOOL_OPTIONS: -XX:+UseG1GC\n"
    "Error occurred during initialization of VM\n"
    "Multiple garbage collectors selected\n"
    "Error: Could not create the Java Virtual Machine.\n"
    "Error: A fatal exception has occurred. Program will exit.\n\n"
)
ETCD = (
    '{"level":"info","ts":"2026-01-01","msg":"starting"}\n'
    '{"level":"fatal","ts":"2026-01-01","msg":"member name is not in the cluster"}\n'
    '{"level":"info","ts":"2026-01-01","msg":"closed"}\n'
)
ETCD_FLAG = (
    'invalid value "x" for flag -heartbeat-interval: parse error\n'
    "Usage:\n\n"
    "  etcd [flags]\n"
    "    Start an etcd server.\n\n"
    "  etcd --version\n"
    "    Show the version of etcd.\n\n"
    "  etcd gateway\n"
    "    Run the stateless pass-through etcd TCP connection forwarding proxy.\n\n"
    "  etcd grpc-proxy\n"
    "    Run the stateless etcd v3 gRPC L7 reverse proxy.\n\n"
)
GO_FLAG = "flag provided but not defined: -nope\nUsage of server:\n  -name string\n    \tits name\n"
ARGPARSE = (
    "usage: node [-h]\n"
    "            [--port PORT]\n"
    "node: error: argument --port: invalid int value: 'x'\n"
)
GO = (
    "panic: no such flag\n\n"
    "goroutine 1 [running]:\n"
    "main.parse(0xc000012345, {0x1, 0x2})\n"
    "\t/src/main.go:12 +0x1d\n"
    "main.main()\n"
    "\t/src/main.go:30 +0x25\n"
    "exit status 2\n"
)
REDIS = (
    "*** FATAL CONFIG FILE ERROR (Redis 7.0.15) ***\n"
    "Reading the configuration file, at line 3\n"
    ">>> 'no-such-directive 7'\n"
    "Bad directive or wrong number of arguments\n"
)
PYTHON = (
    "Traceback (most recent call last):\n"
    '  File "node.py", line 3, in <module>\n'
    "    import no_such\n"
    "ModuleNotFoundError: No module named 'no_such'\n"
)
MAVEN = (
    "[ERROR] Could not resolve dependencies: repo.example: unknown host\n"
    "[ERROR] -> [Help 1]\n"
    "[ERROR] \n"
    "[ERROR] Re-run Maven using the -X switch to enable full debug logging.\n"
)


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("", ""),
        ("\n  \n", ""),
        (
            KAFKA,
            "ERROR kafka.Kafka$ Exiting Kafka due to fatal exception \\ "
            "java.lang.RuntimeException: No readable meta.properties files found.",
        ),
        (CAUSED, "Caused by: java.nio.file.InvalidPathException: Malformed input: j??rg"),
        (JVM, "Multiple garbage collectors selected"),
        (ETCD, '{"level":"fatal","ts":"2026-01-01","msg":"member name is not in the cluster"}'),
        (ETCD_FLAG, 'invalid value "x" for flag -heartbeat-interval: parse error'),
        (GO_FLAG, "flag provided but not defined: -nope"),
        (ARGPARSE, "node: error: argument --port: invalid int value: 'x'"),
        ("Usage: node PORT\n  PORT is a number\n", "PORT is a number"),
        (GO, "panic: no such flag"),
        (REDIS, "Bad directive or wrong number of arguments"),
        (PYTHON, "ModuleNotFoundError: No module named 'no_such'"),
        (MAVEN, "[ERROR] Could not resolve dependencies: repo.example: unknown host"),
        ("12:00 INFO started\n12:01 WARN no disk\n12:02 INFO ended", "12:01 WARN no disk"),
        ("12:00 INFO started\n12:02 INFO ended\n", "12:02 INFO ended"),
        ("\tat Main.main(Main.java:1)\n", ""),
    ],
)
def test_the_last_line_that_means_something_is_quoted(printed: str, words: str) -> None:
    assert last_words(printed) == words


def test_a_line_without_end_is_shortened() -> None:
    quoted = last_words("a" * 9_000)
    assert len(quoted) == 300
    assert quoted.endswith("aaa...")
