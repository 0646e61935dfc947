"""The command line interface `tacit`.

Every command that prints a result prints it as a table, or with `--json` as one JSON object. An
error is one line on standard error with exit code 2, and leaves no partial output.
"""

from __future__ import annotations

import atexit
import functools
import gc
import re
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from tacit.cli import accounting, demo, doctor, experiments, live, serving, simulating, sweeping
from tacit.cli.printing import harmless
from tacit.errors import InvalidFile, TacitError
from tacit.version import __version__

LOOK: dict[str, Any] = {
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(
    help="Learn which option works best from people whose answers you never see: bandits under "
    "distributed differential privacy.",
    **LOOK,
)

COMMANDS = (
    simulating.simulate,
    simulating.compare,
    sweeping.sweep,
    sweeping.report,
    experiments.plan,
    experiments.reproduce,
    experiments.attack,
    experiments.algorithms,
    accounting.calibrate,
    accounting.privacy,
    accounting.compose,
    accounting.amplify,
    accounting.audit,
    accounting.corrections,
    serving.serve,
    doctor.doctor,
)


class Stopped(Exception):  # noqa: N818  (an interrupt is not an error)
    """An interrupt with the progress of its command, which Typer's own handling would lose."""


def heard(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that its interrupts reach `main`."""

    @functools.wraps(command)
    def run(*words: Any, **options: Any) -> None:
        try:
            command(*words, **options)
        except KeyboardInterrupt as interrupt:
            raise Stopped(*interrupt.args) from None

    return run


for command in COMMANDS:
    app.command()(heard(command))
demonstrations = typer.Typer(**LOOK | {"no_args_is_help": False}, invoke_without_command=True)
demonstrations.callback(help=demo.demo.__doc__)(heard(demo.demo))
demonstrations.command()(heard(demo.noise))
app.add_typer(demonstrations, name="demo")
for name, (about, commands) in live.GROUPS.items():
    group = typer.Typer(help=about, **LOOK)
    for word, command in commands.items():
        group.command(word)(heard(command))
    app.add_typer(group, name=name)
ARGUMENT = re.compile(r"\((clip|resample)\)")  # Python arguments in errors, shown as options
YOUNGEST = 50_000  # garbage collection threshold: startup creates hardly any garbage


def main() -> None:
    """Entry point: an error becomes one line on standard error and exit code 2, an
    interrupt 130.
    """
    gc.set_threshold(YOUNGEST)
    atexit.register(gc.freeze)  # skip garbage collection at exit
    try:
        code = app(standalone_mode=False)
    except InvalidFile as error:
        _fail(error.heading, problems=error.problems)
    except TacitError as error:
        _fail(str(error))
    except (ArithmeticError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        _fail(
            f"a number is too large or too small to compute with ({reason}): use values nearer to "
            "1, or scale the query"
        )
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}: choose another")
    except (KeyboardInterrupt, Stopped) as stop:
        _fail(", ".join(["interrupted", *map(str, stop.args)]), simulating.INTERRUPTED)
    except Exception as error:
        # Click's own errors have `format_message`: an unknown option, a word for a number
        if type(error).__name__ == "Abort":
            _fail("interrupted", simulating.INTERRUPTED)
        if not hasattr(error, "format_message"):
            raise
        if len(sys.argv) < 2:
            print(error.format_message())
            raise SystemExit(2) from None
        message = error.format_message().replace("Value error, ", "").rstrip(". ")
        if not message:  # a group without a command has printed its help
            raise SystemExit(2) from None
        _fail(f"{message}. Try: tacit{_asked(getattr(error, 'ctx', None))} --help")
    sys.stdout.flush()
    if isinstance(code, int) and code:
        raise SystemExit(code)


def _asked(context: Any) -> str:
    """The command that was requested."""
    if context is None or context.parent is None:
        return ""
    return f"{_asked(context.parent)} {context.info_name}"


def _fail(message: str, code: int = 2, problems: tuple[str, ...] = ()) -> NoReturn:
    """Print the message, a line for each of several problems, and exit."""
    told = f"{message}: {problems[0]}" if len(problems) == 1 else message
    spoken = ARGUMENT.sub(r"(--\1)", harmless(" ".join(told.split())))
    print(f"tacit: {spoken}", file=sys.stderr)
    for problem in problems if len(problems) > 1 else ():
        print(f"  {harmless(problem)}", file=sys.stderr)
    exec("")  # resets CPython's flag for an interrupt in exec(), which would end it by SIGINT
    raise SystemExit(code)


def _version(value: bool) -> None:
    if value:
        print(f"tacit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    del version
