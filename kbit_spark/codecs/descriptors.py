"""Protobuf schemas: `.proto` texts compiled by protoc, descriptor sets read, messages found in them."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import DecodeError

from kbit_spark.errors import MissingRequirement, UsageError

COMPILE_TIMEOUT_S = 60.0

_FAULT = re.compile(r"\S+\.proto:(?!.*\bwarning:)")


@dataclass(frozen=True)
class ProtoSchema:
    """A compiled schema: its main file and everything that this imports."""

    source: str
    """Where it comes from, for errors."""

    main: FileDescriptorProto
    pool: DescriptorPool

    def message(self, name: str) -> Descriptor:
        """Return the message of that full name, of the main file or an imported one.

        Raises:
            UsageError: there is none.
        """
        try:
            return self.pool.FindMessageTypeByName(name.lstrip("."))
        except KeyError as error:
            known = ", ".join(names[0] for names in self.paths().values())
            msg = f"{self.source}: there is no message {name!r}; it has {known or 'none'}"
            raise UsageError(msg, "give the full name, with its package") from error

    def paths(self) -> dict[str, tuple[str, ...]]:
        """Return the full names of the messages of the main file by index path: ``1,0`` is the first in the second.

        Clients disagree on whether the hidden messages of maps are counted, so behind a map a path may mean two
        messages; the one that Java's client means comes first.
        """
        package = f"{self.main.package}." if self.main.package else ""
        found: dict[str, tuple[str, ...]] = {}
        for count_entries in (False, True):
            for path, name in _walk(self.main.message_type, package, "", count_entries):
                found[path] = tuple(dict.fromkeys((*found.get(path, ()), name)))
        return found


def _walk(
    messages: Iterable[DescriptorProto], prefix: str, path: str, count_entries: bool
) -> Iterator[tuple[str, str]]:
    shown = [message for message in messages if count_entries or not message.options.map_entry]
    for index, message in enumerate(shown):
        if not message.options.map_entry:
            yield f"{path}{index}", prefix + message.name
            yield from _walk(message.nested_type, f"{prefix}{message.name}.", f"{path}{index},", count_entries)


def read_schema(file: Path) -> ProtoSchema:
    """Read a descriptor set, or compile a `.proto` file whose imports stand beside it.

    Raises:
        UsageError: it cannot be read or compiled.
        MissingRequirement: a `.proto` file, and no compiler.
    """
    if file.suffix == ".proto":
        if not file.is_file():
            msg = f"cannot read {file}"
            raise UsageError(msg)
        return _schema_of(_protoc(file.parent, file.name, str(file)), file.name, str(file))
    try:
        files = FileDescriptorSet.FromString(file.read_bytes())
    except (OSError, DecodeError) as error:
        msg = f"cannot read {file} as a descriptor set: {error}"
        raise UsageError(msg, "make it with `protoc --include_imports --descriptor_set_out`") from error
    if not files.file:
        msg = f"{file} is an empty descriptor set"
        raise UsageError(msg)
    return _schema_of(files, files.file[-1].name, str(file))


def compile_schema(texts: Mapping[str, str], main: str, source: str) -> ProtoSchema:
    """Compile `.proto` texts by import path, of which `main` is the one whose messages are meant.

    Raises:
        UsageError: it is no valid schema.
        MissingRequirement: there is no compiler.
    """
    with tempfile.TemporaryDirectory(prefix="kbit-proto-") as folder:
        for name, text in texts.items():
            path = (Path(folder) / name).resolve()
            if not path.is_relative_to(Path(folder).resolve()):
                msg = f"{source}: {name!r} is no import path"
                raise UsageError(msg)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return _schema_of(_protoc(Path(folder), main, source), main, source)


def _protoc(folder: Path, main: str, source: str) -> FileDescriptorSet:
    if find_spec("grpc_tools") is None:
        msg = "the package grpcio-tools, which compiles .proto files, is not installed"
        raise MissingRequirement(msg, "pip install grpcio-tools, or give a descriptor set (.desc)")
    with tempfile.TemporaryDirectory(prefix="kbit-protoc-") as work:
        out = Path(work) / "out.desc"
        # a process of its own: protoc writes its faults to the process's stderr, and a crash stays outside
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder.absolute()}", "--include_imports"]
        command += [f"--descriptor_set_out={out}", main]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMPILE_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            msg = f"{source}: protoc did not end within {COMPILE_TIMEOUT_S:g} s"
            raise UsageError(msg, "give a descriptor set (.desc)") from error
        if done.returncode != 0 or not out.is_file():
            told = done.stderr.strip().splitlines() or [f"protoc ended with {done.returncode}"]
            faults = [line for line in told if _FAULT.match(line)] or told  # there may be warnings before them
            fault = faults[0].replace(f"{folder.absolute()}/", "")
            msg = f"{source} is no valid Protobuf schema: {fault}"
            raise UsageError(msg, "imports must stand beside the file; else give a descriptor set (.desc)")
        return FileDescriptorSet.FromString(out.read_bytes())


def _schema_of(files: FileDescriptorSet, main: str, source: str) -> ProtoSchema:
    pool = DescriptorPool()
    try:
        known = {file.name: file for file in files.file}
        for file in files.file:
            _add(pool, file.name, known, set())
    except (TypeError, KeyError) as error:
        msg = f"{source}: the schema is not whole: {error}"
        raise UsageError(msg, "make it with `protoc --include_imports --descriptor_set_out`") from error
    return ProtoSchema(source, known[main], pool)


def _add(pool: DescriptorPool, name: str, known: Mapping[str, FileDescriptorProto], begun: set[str]) -> None:
    """Add a file behind its imports; the well-known types need not be in the set."""
    if name in begun:
        return
    begun.add(name)
    file = known.get(name)
    if file is None:
        file = _well_known(name)
    for needed in file.dependency:
        _add(pool, needed, known, begun)
    pool.Add(file)


def _well_known(name: str) -> FileDescriptorProto:
    """Return a file that every compiler brings along.

    Raises:
        KeyError: it is no such file.
    """
    file = FileDescriptorProto()
    if name.startswith("google/protobuf/"):
        with suppress(ImportError):
            import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    Default().FindFileByName(name).CopyToProto(file)
    return file
