"""What every entry point does: parse arguments, load the configuration, turn errors into one line and an exit code."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from kbit_spark.config.load import load
from kbit_spark.errors import KbitError, first_line
from kbit_spark.schemas.base import Frozen

Config = TypeVar("Config", bound=Frozen)
log = logging.getLogger("kbit")


def run_job(
    model: type[Config],
    job: Callable[[Config], object],
    description: str,
    flags: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """Run a job whose arguments are ``[--config FILE] [section.key=value ...]`` and end the process.

    Args:
        model: the configuration.
        job: what to run.
        description: what the job does, for `--help`.
        flags: more arguments, each short for setting a key to true: name (``--rebase``) to key (``guard.rebase``).
        options: more arguments with a value, each short for an override with that value in place of ``{}``: name
            (``--iterations``) to override (``iterations={}``); they may be given several times.
    """

    def main() -> None:
        arguments = _parse(description, sys.argv[1:], flags or {}, options or {})
        job(load(model, arguments.config, [*arguments.overrides, *arguments.flags]))

    exit_with(main)


def exit_with(main: Callable[[], object]) -> None:
    """Call `main` and end the process: 0, a `KbitError`'s exit code, 130 on an interrupt, 1 on anything else.

    The terminal gets one line; the stack trace goes to the log (file `KBIT_LOG`, default `.kbit/kbit.log`).
    """
    _log_to_file(Path(os.environ.get("KBIT_LOG", ".kbit/kbit.log")))
    try:
        main()
    except KbitError as error:
        report(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _fail("interrupted", "", 130)
    except Exception as error:
        _fail(_describe(error), "the stack trace is in the log", 1)


def report(error: KbitError) -> None:
    """Print the one line of an error and its hint, and log its stack trace."""
    _tell(error.message, error.hint)


def _describe(error: Exception) -> str:
    """Return one line about an error that nobody foresaw; a file or folder that is in the way is named as such."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        return f"{error.filename}: {error.strerror}"
    return f"unexpected {type(error).__name__}: {first_line(str(error))}"


def _parse(
    description: str, arguments: Sequence[str], flags: Mapping[str, str], options: Mapping[str, str]
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--config", type=Path, help="YAML file; `kbit config init` writes a sample")
    for flag, key in flags.items():
        parser.add_argument(
            flag, dest="flags", action="append_const", const=f"{key}=true", default=[], help=f"short for {key}=true"
        )
    for option, override in options.items():
        parser.add_argument(
            option, dest="flags", action="append", type=override.format, default=[], metavar="VALUE",
            help=f"short for {override.format('VALUE')}",
        )  # fmt: skip
    parser.set_defaults(flags=[])
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="override one configuration value")
    return parser.parse_intermixed_args(arguments)  # overrides and flags in any order


def _log_to_file(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler: logging.Handler = logging.FileHandler(path)
    except OSError:  # a read-only folder must not stop the job; the terminal still gets the one line
        handler = logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.getLogger("py4j").setLevel(logging.WARNING)


def _fail(message: str, hint: str, code: int) -> None:
    _tell(message, hint)
    sys.exit(code)


def _tell(message: str, hint: str) -> None:
    log.error(message, exc_info=sys.exc_info())
    print(f"error: {message}" + (f"\n  {hint}" if hint else ""), file=sys.stderr, flush=True)
