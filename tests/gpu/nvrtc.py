"""NVRTC, as torch brings it: compiles CUDA source without a GPU."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.metadata import files
from pathlib import Path

OPTIONS = ("--std=c++17",)
"""Beside the architecture, which makes the result a CUBIN and not PTX, nothing else is needed."""


class CompileError(Exception):
    """The source is wrong; the message is NVRTC's log."""


def compile_cubin(source: str, arch: str = "sm_90") -> bytes:
    """Return the machine code of a CUDA source for a real architecture.

    Raises:
        CompileError: it does not compile.
    """
    library = _library()
    program = ctypes.c_void_p()
    _check(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None))
    try:
        options = [option.encode() for option in (*OPTIONS, f"--gpu-architecture={arch}")]
        status = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if status:
            raise CompileError(_bytes(program, "ProgramLog").decode(errors="replace"))
        return _bytes(program, "CUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _bytes(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(_library(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    data = ctypes.create_string_buffer(size.value)
    _check(getattr(_library(), f"nvrtcGet{what}")(program, data))
    return data.raw


def _check(status: int) -> None:
    if status:
        text = _library().nvrtcGetErrorString
        text.restype = ctypes.c_char_p
        msg = f"NVRTC: {text(status).decode()}"
        raise RuntimeError(msg)


@cache
def _library() -> ctypes.CDLL:
    found = [file.locate() for file in files("nvidia-cuda-nvrtc") or () if file.name.startswith("libnvrtc.so")]
    return ctypes.CDLL(str(Path(str(found[0]))))
