"""The product's decoders in a small JVM of their own, without Spark: it is there in a second."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from kbit_spark.cli.doctor.machine import java_command
from kbit_spark.codecs.plan import Plan
from kbit_spark.errors import MissingRequirement, RunError
from kbit_spark.session import JARS, PYSPARK

Decode = Callable[[Plan, Sequence[bytes]], list[dict[str, object]]]
"""Gives for each payload ``{"value": {...}}`` or ``{"error": code, "position": byte, "reason": text}``."""

_OPTIONS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
END_S = 10.0


@contextmanager
def decoders() -> Iterator[Decode]:
    """Start the JVM and yield the function that decodes in it.

    Raises:
        MissingRequirement: no Java, or jars are not there.
    """
    py4j = next((PYSPARK / "jars").glob("py4j-*.jar"), None)
    if py4j is None or not any(JARS.glob("kbit-jvm-*.jar")):
        msg = f"no kbit-jvm jar in {JARS}"
        raise MissingRequirement(msg, "run `make setup`, or set KBIT_JARS to the folder that holds it")
    gateway, process = _launch(str(py4j))
    try:
        yield lambda plan, payloads: _decode(gateway, plan, payloads)
    finally:
        gateway.shutdown()
        process.stdin.close()  # its sign to end
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _launch(py4j: str) -> tuple[JavaGateway, Any]:
    try:
        port, token, process = launch_gateway(
            jarpath=py4j,
            classpath=os.pathsep.join((f"{JARS}/*", f"{PYSPARK}/jars/*")),
            javaopts=_OPTIONS,
            java_path=java_command(),
            redirect_stderr=subprocess.DEVNULL,
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
        )
    except (ValueError, OSError, Py4JError) as error:
        msg = "Java does not start"
        raise MissingRequirement(msg, "`kbit doctor` tells what is wrong with it") from error
    parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
    return JavaGateway(gateway_parameters=parameters), process


def _decode(gateway: JavaGateway, plan: Plan, payloads: Sequence[bytes]) -> list[dict[str, object]]:
    try:
        lines = gateway.jvm.kbit.decode.Decoders.decodeToJson(json.dumps(plan), list(payloads))
    except Py4JJavaError as error:  # its text can be had only while the JVM runs
        msg = f"the decoders cannot run the plan: {error.java_exception.toString()}"
        raise RunError(msg, "the kbit-jvm jar may be of another version: run `make setup`") from None
    return [json.loads(line) for line in lines]
