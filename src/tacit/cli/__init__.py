"""The command line interface `tacit`.

Every command that prints a result prints it as a table, or with `--json` as one JSON object. An
error is one line on standard error with exit code 2, and leaves no partial output. A command's
module is imported when the command is called: `tacit --help` loads none of them.
"""

from __future__ import annotations

import atexit
import functools
import gc
import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from tacit.cli.printing import INTERRUPTED, harmless
from tacit.errors import InvalidFile, TacitError, did_you_mean
from tacit.version import __version__

LISTED: dict[str, dict[str, tuple[str, str]]] = {
    "Simulation": {
        "simulate": ("simulating", "Simulate one algorithm over many runs."),
        "compare": ("simulating", "Compare several algorithms on the same problems."),
        "sweep": ("sweeping", "Sweep a grid of algorithms, problems and guarantees."),
        "report": ("sweeping", "Report on a sweep: one HTML page, and tables."),
        "plan": ("experiments", "Estimate what an experiment takes under each trust model."),
        "algorithms": ("experiments", "List the named algorithms."),
    },
    "Privacy accounting": {
        "calibrate": ("accounting", "Find the least noise of a target guarantee."),
        "privacy": ("accounting", "Compute the guarantee of given noise."),
        "compose": ("accounting", "Compose the guarantees of several participations."),
        "amplify": ("accounting", "Compute amplification by shuffling."),
        "audit": ("auditing", "Attack the noise that devices draw, to refute a guarantee."),
    },
    "Papers": {
        "reproduce": ("experiments", "Draw a figure of a paper from scratch."),
        "attack": ("experiments", "Attack a schedule that was claimed to be private."),
        "corrections": (
            "accounting",
            "List incorrect constants of the papers, with the correct ones.",
        ),
    },
    "Live experiments": {
        "demo": ("demo", "Run a live experiment on this machine with simulated participants."),
        "experiment": ("live", "Define, publish, watch and end live experiments."),
        "terms": ("live", "Read and sign the terms of an experiment."),
        "party": ("live", "Set up the two servers of live experiments."),
        "invitations": ("live", "Make invitations to take part."),
        "serve": ("serving", "Run one of the two servers."),
        "doctor": ("doctor", "Check a deployment from outside."),
    },
    "Federations": {
        "silo": ("silos", "Set up and run the agent of a silo."),
        "federation": ("silos", "Define a federation of silos and make its terms."),
    },
}
HOMES = {name: home for section in LISTED.values() for name, (home, _) in section.items()}
LOOK: dict[str, Any] = {
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
ARGUMENT = re.compile(r"\((clip|resample)\)")  # Python arguments in errors, shown as options
DIALECT = re.compile("Value error, |, unable to parse[^.]*")  # of pydantic's messages
UNKNOWN = re.compile(r"No such (command|option):? '?([^' .]+)")  # of Click's messages
YOUNGEST = 50_000  # garbage collection threshold: startup creates hardly any garbage
UsageError: Any = typer.BadParameter.__mro__[1]  # Click's, of which Typer may have its own copy


class Stopped(Exception):  # noqa: N818  (an interrupt is not an error)
    """An interrupt with the progress of its command, which Typer's own handling would lose."""


def reporting_interrupts(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that its interrupts reach `main`."""

    @functools.wraps(command)
    def run(*words: Any, **options: Any) -> None:
        try:
            command(*words, **options)
        except KeyboardInterrupt as interrupt:
            raise Stopped(*interrupt.args) from None

    return run


class Commands(TyperGroup):
    """All commands: listed from a table, imported when they are called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """The names of all commands."""
        return list(HOMES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; an unknown name is rejected with a similar one."""
        if cmd_name not in HOMES:
            hint = did_you_mean(cmd_name, HOMES)
            raise UsageError(f"there is no command {cmd_name!r}{hint}", ctx=ctx)
        return built(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write one section of the help per purpose."""
        for title, commands in LISTED.items():
            with formatter.section(title):
                formatter.write_dl([(name, about) for name, (_, about) in commands.items()])


def built(name: str) -> Any:
    """Import and build a command, or a group of commands that its module has in `GROUPS`."""
    from tacit.cli.options import OfAlgorithm

    home = vars(import_module(f"tacit.cli.{HOMES[name]}"))
    made = typer.Typer(**LOOK, rich_markup_mode="rich", add_completion=False)
    group = home.get("GROUPS", {}).get(name)
    if group is None:
        made.command(name, cls=OfAlgorithm)(reporting_interrupts(home[name]))
    else:
        alone = group.command is not None
        made.callback(help=group.about, invoke_without_command=alone, no_args_is_help=not alone)(
            reporting_interrupts(group.command) if group.command is not None else lambda: None
        )
        for word, command in group.commands.items():
            made.command(word)(reporting_interrupts(command))
    found = typer.main.get_command(made)
    found.name = name
    return found


app = typer.Typer(
    cls=Commands,
    help="Learn which option works best from people whose answers you never see: bandits under "
    "distributed differential privacy.",
    rich_markup_mode=None,
    **LOOK,
)


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
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}: check the path")
    except (KeyboardInterrupt, Stopped) as stop:
        _fail(", ".join(["interrupted", *map(str, stop.args)]), INTERRUPTED)
    except typer.Abort:
        _fail("interrupted", INTERRUPTED)
    except UsageError as error:  # an unknown option, a word for a number
        if len(sys.argv) < 2:
            print(error.format_message())
            raise SystemExit(2) from None
        message = _unknown(error) or DIALECT.sub("", error.format_message()).rstrip(". ")
        message = message.replace("Input should be", "must be")
        if not message:  # a group without a command has printed its help
            raise SystemExit(2) from None
        message += _rejected(error.__cause__)
        end = "" if message.endswith("?") else "."
        _fail(f"{message}{end} Try: tacit{_requested_command(error.ctx)} --help")
    sys.stdout.flush()
    if isinstance(code, int) and code:
        raise SystemExit(code)


def _unknown(error: Any) -> str:
    """An unknown command or option, with a similar one; empty for another error."""
    found = UNKNOWN.match(error.format_message())
    if found is None or error.ctx is None:
        return ""
    kind, word = found.groups()
    command = error.ctx.command
    if kind == "command":
        known = command.list_commands(error.ctx)
    else:
        known = [one for some in command.params for one in (*some.opts, *some.secondary_opts)]
    hint = did_you_mean(word, known)
    if kind == "command" and not hint:
        hint = f"; there are {', '.join(known)}"
    return f"there is no {kind} {word!r}{hint}"


def _rejected(cause: BaseException | None) -> str:
    """The value that pydantic rejected, which Typer leaves out of its message."""
    try:
        from pydantic import ValidationError
    except ImportError:  # an older Typer, which names the value itself
        return ""
    if not isinstance(cause, ValidationError):
        return ""
    (first, *_) = cause.errors()
    return "" if first["type"] == "value_error" else f", not {first['input']!r}"


def _requested_command(context: Any) -> str:
    """The command that was requested."""
    if context is None or context.parent is None:
        return ""
    return f"{_requested_command(context.parent)} {context.info_name}"


def _fail(message: str, code: int = 2, problems: tuple[str, ...] = ()) -> NoReturn:
    """Print the message, a line for each of several problems, and exit."""
    joined = f"{message}: {problems[0]}" if len(problems) == 1 else message
    spoken = ARGUMENT.sub(r"(--\1)", harmless(" ".join(joined.split())))
    print(f"tacit: {spoken}", file=sys.stderr)
    for problem in problems if len(problems) > 1 else ():
        print(f"  {harmless(problem)}", file=sys.stderr)
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
