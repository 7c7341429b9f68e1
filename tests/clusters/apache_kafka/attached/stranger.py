"""A cluster of Apache Kafka as a stranger has it, started by its own commands.

Three nodes that are broker and controller, each a JVM with Kafka's own log layout; and a plain
toxiproxy, whose proxies lie before them for clients. Where a container engine answers, the last
node is a container that logs to its standard output.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import Consumer, NewTopic

from fencepost.injection import building
from fencepost.model.clock import poll
from fencepost_clusters.apache_kafka.attached.asking import Unanswered, metadata_by
from fencepost_clusters.apache_kafka.cluster import DEFAULT_VERSION
from fencepost_clusters.apache_kafka.distribution import cache

NODES = (1, 2, 3)
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
_LOGGING = """
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = ${{sys:kafka.logs.dir}}/server.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
rootLogger.appenderRef.out.ref = out
"""
IMAGE = "fencepost-stranger"
"""An image with nothing in it: the programs are this machine's."""
_PROGRAMS = ("/bin", "/etc", "/lib", "/lib64", "/usr")
_PROPERTIES = """
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{address}:{port},CONTROLLER://{address}:{controller},PEERS://{address}:{peers}
advertised.listeners=PLAINTEXT://{address}:{listen},PEERS://{told}:{peers}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PEERS:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PEERS
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
replica.lag.time.max.ms=3000
num.network.threads=1
num.io.threads=3
log.cleaner.dedupe.buffer.size=4194304
auto.create.topics.enable=false
"""
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
}


_MODULE = Path(building.__file__).parent / "toxiproxy"


def plain_toxiproxy(folder: Path) -> Path:
    """The server as users have it, without toxics of Fencepost's, built there."""
    program = folder / "toxiproxy-server"
    # By the module of our own build, so it is of the version that it pins.
    package = "github.com/Shopify/toxiproxy/v2/cmd/server"
    subprocess.run(["go", "build", "-o", program, package], cwd=_MODULE, check=True)
    return program


def free_port() -> int:
    """A port of loopback on which nothing listens now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass
class Stranger:
    """The stack; `file` is the text of a file that attaches to it."""

    folder: Path
    ports: dict[str, int]
    contained: tuple[int, ...] = ()
    """The nodes that are containers."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.ports['api']}"

    def ask(self, path: str, method: str = "GET", body: object = None) -> object:
        """An answer of the toxiproxy."""
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"{self.api}{path}", data, method=method)
        with urllib.request.urlopen(asked, timeout=5) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def home(self, node: int) -> Path:
        return self.folder / f"kafka-{node}"

    def container(self, node: int) -> str:
        return f"fencepost-stranger-{self.ports['api']}-{node}"

    def start_command(self, node: int) -> list[str]:
        return ["/bin/sh", str(self.home(node) / "start.sh")]

    def pid(self, node: int) -> int:
        if node in self.contained:
            form = "{{.State.Pid}}"
            return int(engine("inspect", "--format", form, self.container(node)).split()[0])
        return int((self.home(node) / "pid").read_text())

    def file(self, *, consent: bool = True, more: str = "") -> str:
        """An attachment to all of it."""
        lines = ["may_break = true"] if consent else []
        first = ", ".join(f'"127.0.0.1:{self.ports[f"listen-{n}"]}"' for n in NODES)
        lines += [
            f"bootstrap = [{first}]",
            more,
            "[toxiproxy]",
            f'url = "{self.api}"',
            "[settings]",
        ]
        lines += [f'"{name}" = "{value}"' for name, value in SETTINGS.items()]
        for n in NODES:
            command = ", ".join(json.dumps(one) for one in self.start_command(n))
            lines += [
                "[[node]]",
                f'name = "broker-{n}"',
                f"id = {n}",
                'roles = ["broker", "controller"]',
                f'address = "127.0.0.1:{self.ports[f"port-{n}"]}"',
                *(
                    [f'container = "{self.container(n)}"', "utc = false"]
                    if n in self.contained
                    else [
                        f'pid_file = "{self.home(n)}/pid"',
                        f"start = [{command}]",
                        f'logs = ["{self.home(n)}/logs/server.log"]',
                    ]
                ),
                "[[link]]",
                'from = "clients"',
                f'to = "broker-{n}"',
                f'proxy = "clients-{n}"',
                f'listen = "127.0.0.1:{self.ports[f"listen-{n}"]}"',
            ]
        return "\n".join(lines) + "\n"

    def attach_file(self, **how: object) -> Path:
        path = self.folder / "cluster.toml"
        path.write_text(self.file(**how))  # type: ignore[arg-type]
        return path

    def end(self) -> None:
        for node in self.contained:
            subprocess.run(
                ["docker", "rm", "--force", self.container(node)],
                capture_output=True,
                check=False,
            )
        for node in set(NODES).difference(self.contained):
            try:
                os.kill(self.pid(node), signal.SIGKILL)
            except (OSError, ValueError):
                continue
        for process in self.processes.values():
            process.kill()
            process.wait()


def _write_node(stack: Stranger, node: int, voters: str, home: Path) -> None:
    folder = stack.home(node)
    (folder / "logs").mkdir(parents=True)
    (folder / "log4j2.properties").write_text(_LOGGING.format())
    (folder / "server.properties").write_text(
        _PROPERTIES.format(
            node=node,
            voters=voters,
            address="127.0.0.1",
            told="127.0.0.1",
            port=stack.ports[f"port-{node}"],
            controller=stack.ports[f"controller-{node}"],
            peers=stack.ports[f"peers-{node}"],
            listen=stack.ports[f"listen-{node}"],
            folder=folder,
        )
    )
    java = f'java -Xms64m -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "{home}/lib/*"'
    archive = next(iter(sorted(home.glob("classes-*.jsa"))), None)
    quick = f"-XX:SharedArchiveFile={archive} -Xshare:auto" if archive else ""
    (folder / "format.sh").write_text(
        f"exec {java} kafka.tools.StorageTool format -t {CLUSTER} -c {folder}/server.properties\n"
    )
    (folder / "start.sh").write_text(
        f"echo $$ >{folder}/pid.new\nmv {folder}/pid.new {folder}/pid\n"
        f"exec {java} {quick} -Dkafka.logs.dir={folder}/logs "
        f"-Dlog4j2.configurationFile={folder}/log4j2.properties "
        f"kafka.Kafka {folder}/server.properties\n"
    )


def has_engine() -> bool:
    """Whether a container engine answers here."""
    if shutil.which("docker") is None:
        return False
    asked = ["docker", "version", "--format", "{{.Server.Version}}"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def engine(*words: str) -> str:
    """What a command of the engine prints."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=True)
    return done.stdout


def _contain(stack: Stranger, node: int, kafka: Path) -> None:
    """Starts a node as a container, with this machine's programs and network."""
    empty = tarfile.TarInfo("fencepost").tobuf() + bytes(2 * tarfile.BLOCKSIZE)
    subprocess.run(["docker", "import", "-", IMAGE], input=empty, capture_output=True, check=True)
    bound = [*(f"{one}:{one}:ro" for one in _PROGRAMS), f"{kafka}:{kafka}:ro"]
    bound.append(f"{stack.folder}:{stack.folder}")
    volumes = [word for one in bound for word in ("--volume", one)]
    words = ["run", "--detach", "--name", stack.container(node), "--network", "host", *volumes]
    engine(*words, IMAGE, *stack.start_command(node))


@contextmanager
def stranger(folder: Path) -> Iterator[Stranger]:
    """The stack, up and whole, until the `with` ends."""
    names = [f"{what}-{n}" for what in ("port", "controller", "peers", "listen") for n in NODES]
    ports = {name: free_port() for name in (*names, "api")}
    stack = Stranger(folder, ports, NODES[-1:] if has_engine() else ())
    home = cache(os.environ) / DEFAULT_VERSION
    voters = ",".join(f"{n}@127.0.0.1:{stack.ports[f'controller-{n}']}" for n in NODES)
    try:
        stack.processes["toxiproxy"] = subprocess.Popen(
            [plain_toxiproxy(folder), "-host", "127.0.0.1", "-port", str(stack.ports["api"])],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for node in NODES:
            _write_node(stack, node, voters, home)
        formatting = [
            subprocess.Popen(["/bin/sh", stack.home(n) / "format.sh"], stdout=subprocess.DEVNULL)
            for n in NODES
        ]
        assert [one.wait(60) for one in formatting] == [0] * len(NODES)
        _until(lambda: _is_up(stack.ports["api"]), 20)
        for node in NODES:
            proxy = {
                "name": f"clients-{node}",
                "listen": f"127.0.0.1:{stack.ports[f'listen-{node}']}",
                "upstream": f"127.0.0.1:{stack.ports[f'port-{node}']}",
            }
            stack.ask("/proxies", "POST", proxy)
            if node in stack.contained:
                _contain(stack, node, home)
                continue
            stack.processes[f"kafka-{node}"] = subprocess.Popen(
                stack.start_command(node),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        _until(lambda: whole(stack), 90)
        yield stack
    finally:
        stack.end()


def _is_up(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def whole(stack: Stranger) -> bool:
    """Whether every broker is in the cluster, and every replica in sync, by all of them."""
    try:
        shown = [metadata_by(("127.0.0.1", stack.ports[f"port-{n}"]), "stranger") for n in NODES]
    except Unanswered:
        return False
    return all(
        len(one.brokers) == len(NODES)
        and all(set(part.isr) == set(part.replicas) for part in one.partitions)
        for one in shown
    )


def _until(holds: Callable[[], bool], limit_s: float) -> None:
    assert poll(holds, limit_s, 0.1)


def make_topic(stack: Stranger, topic: str) -> None:
    """A topic of the stranger's own."""
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{stack.ports['listen-1']}"})
    admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(30)
    _until(lambda: topic in topics_of(stack), 30)
    # With its first group Kafka makes a topic of its own.
    group = {"bootstrap.servers": f"127.0.0.1:{stack.ports['listen-1']}", "group.id": "theirs"}
    consumer = Consumer(group)
    consumer.subscribe([topic])
    consumer.poll(1)
    _until(lambda: "__consumer_offsets" in topics_of(stack), 30)
    consumer.close()


def topics_of(stack: Stranger) -> Sequence[str]:
    """The topics that the cluster has."""
    return sorted(metadata_by(("127.0.0.1", stack.ports["port-1"]), "stranger").topics)
