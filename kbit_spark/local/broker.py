"""An embedded Kafka broker (KRaft, one node) for the demo, the tests and a laptop; its data lies in one folder.

The broker runs on as a process of its own; `broker.json` in the folder says which one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kbit_spark.errors import MissingRequirement, RunError, UsageError

JARS = Path(os.environ.get("KBIT_BROKER", Path(__file__).parents[2] / "jars/target/broker"))
DEFAULT_FOLDER = Path(".kbit/broker")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
TRIES = 3

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
message.max.bytes=10485760
"""


@dataclass(frozen=True)
class Broker:
    """A running broker."""

    pid: int
    started: float
    """The process's creation time: a process that reuses the pid is not ours."""

    bootstrap_servers: str

    @property
    def port(self) -> int:
        """Port of its listener."""
        return int(self.bootstrap_servers.rpartition(":")[2])


def start(folder: Path = DEFAULT_FOLDER, port: int | None = None) -> Broker:
    """Start the broker of `folder` and wait until it answers; one that runs already is returned as it is.

    Args:
        folder: holds data, log and state; made if absent, and its topics are there again after a restart.
        port: port of the listener; none: the one that the folder had before if it is free, else any free one.

    Raises:
        UsageError: one runs already, at another port than the one asked for.
        MissingRequirement: no Java, or the broker's jars are not there.
        RunError: the port is taken, or the broker did not come up.
    """
    if running := status(folder):
        if port not in (None, running.port):
            msg = f"the broker of {folder} runs already, at {running.bootstrap_servers}, not at port {port}"
            raise UsageError(msg, "`kbit broker stop` stops it; another one needs a --folder of its own")
        return running
    java = required_java()
    if port is not None and not _is_free(port):
        msg = f"port {port} is taken"
        raise RunError(msg, "choose another --port, or none for a free one")
    folder.mkdir(parents=True, exist_ok=True)
    for left in reversed(range(TRIES)):  # a free port can be lost between looking and binding
        try:
            return _launch(java, folder.resolve(), port or _port_for(folder))
        except RunError as error:
            if not left or "in use" not in error.message:
                raise
    raise AssertionError


def required_java() -> str:
    """Return the path of the Java that a broker starts with.

    Raises:
        MissingRequirement: no Java, or the broker's jars are not there.
    """
    java = shutil.which("java")
    if java is None:
        msg = "no java on the PATH"
        raise MissingRequirement(msg, "install Java 17 or newer, and put it on the PATH")
    if not any(JARS.glob("kafka_*.jar")):
        msg = f"no broker jars in {JARS}"
        raise MissingRequirement(msg, "run `make setup`")
    return java


def stop(folder: Path = DEFAULT_FOLDER) -> bool:
    """Stop the broker of `folder`; False where none runs. The data stays."""
    running = status(folder)
    if running is None:
        return False
    process = psutil.Process(running.pid)
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait(STOP_TIMEOUT_S)
    return True


def status(folder: Path = DEFAULT_FOLDER) -> Broker | None:
    """Return the broker of `folder` if its process lives."""
    broker = _last(folder)
    if broker is None or not psutil.pid_exists(broker.pid):
        return None
    try:
        process = psutil.Process(broker.pid)
        ours = abs(process.create_time() - broker.started) < 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return None
    return broker if ours else None


def _last(folder: Path) -> Broker | None:
    try:
        return Broker(**json.loads((folder / "broker.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _launch(java: str, folder: Path, port: int) -> Broker:
    properties = folder / "server.properties"
    data = folder / "data"
    properties.write_text(_PROPERTIES.format(port=port, controller_port=_free_port(), data=data))
    # G1 and many threads are for servers; a small heap and the serial collector start in half the time
    command = [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*"]
    command.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
    if not (data / "meta.properties").exists():
        _format(command, properties)
    with (folder / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "kafka.Kafka", str(properties)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    broker = Broker(process.pid, psutil.Process(process.pid).create_time(), f"127.0.0.1:{port}")
    (folder / "broker.json").write_text(json.dumps(asdict(broker)))
    try:
        _wait_until_ready(process, broker, folder / "broker.log")
    except BaseException:
        process.send_signal(signal.SIGKILL)
        process.wait()
        raise
    return broker


def _format(command: list[str], properties: Path) -> None:
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    tool = [
        *command,
        "kafka.tools.StorageTool",
        "format",
        f"--cluster-id={cluster}",
        "-c",
        str(properties),
        "--ignore-formatted",
    ]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        msg = f"cannot format the broker's folder: {(done.stderr or done.stdout).strip()[-300:]}"
        raise RunError(msg)


def _wait_until_ready(process: subprocess.Popen[bytes], broker: Broker, log: Path) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            lines = log.read_text(errors="replace").strip().splitlines()
            reason = next((line for line in lines if "Exception" in line), lines[-1] if lines else "no output")
            taken = " (port in use)" if any("Address already in use" in line for line in lines) else ""
            msg = f"the broker ended at its start{taken}: {reason.strip()}"
            raise RunError(msg, f"its log is {log}")
        try:
            admin.list_topics(timeout=1)
        except KafkaException:
            continue
        return
    msg = f"the broker did not answer within {START_TIMEOUT_S:.0f} s"
    raise RunError(msg, f"its log is {log}")


def _port_for(folder: Path) -> int:
    before = _last(folder)
    if before is not None and _is_free(before.port):  # clients that remember the address find the broker again
        return before.port
    return _free_port()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
