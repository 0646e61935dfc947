"""Commands of the demonstration: a live experiment on this machine, and tables of noise and
regret.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.operating import needs_live
from tacit.cli.options import CommandGroup, Json, Whole, option
from tacit.cli.printing import print_json, print_sentence, print_table
from tacit.errors import TacitError, integer, one_of
from tacit.trust import DEPLOYABLE, TrustModel

if TYPE_CHECKING:
    from types import FrameType

    from tacit.service.demo.play import DemoProgress, DemoSettings

LEAST, MOST = 500, 1_000_000

People = Annotated[int, option("Approximate number of participants.", **Whole)]
Out = Annotated[Path, option("Directory for the report.")]
Seed = Annotated[int, option("Seed of the simulated participants.", **Whole)]
Keep = Annotated[bool, option("Keep serving after the report, until ^C.", "--keep")]


def demo(
    context: typer.Context,
    people: People = 2000,
    out: Out = Path("demo-output"),
    seed: Seed = 1,
    keep: Keep = False,
    trust: Annotated[str, option(f"Trust model: {', '.join(DEPLOYABLE)}.")] = DEPLOYABLE[0].value,
    proofs: Annotated[
        bool, option("Reports carry range proofs: servers drop impossible answers.", "--proofs")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a live private experiment on this machine: real servers, simulated participants over HTTP
    with the shipped device and cryptography, web pages, and a report. It ends by itself.
    """
    if context.invoked_subcommand is not None:
        return
    one_of("trust", trust, DEPLOYABLE)
    if proofs and trust != TrustModel.TWO_SERVERS:
        raise TacitError(f"--proofs needs --trust two-servers, not {trust}: leave one of them out")
    settings = _settings(people, seed, trust=TrustModel(trust), proofs=proofs, keep=keep)
    _play(settings, out, "report.html", as_json)


def _play(settings: DemoSettings, out: Path, name: str, as_json: bool) -> None:
    """Run a live experiment and write its report."""
    from tacit.service.demo import report
    from tacit.service.demo.play import playing
    from tacit.simulation import files

    files.probe(out)
    with ExitStack() as stack:
        with _progress(as_json) as watch:
            stack.enter_context(_stopped_by_signal())
            shown = stack.enter_context(playing(settings, watch))
        page = out / name
        with files.atomic_file(page) as partial:
            partial.write_text(report.html(shown), encoding="utf-8")
        if as_json:
            print_json(shown.to_dict() | {"report": str(page)})
        else:
            _print_result(shown)
            print_sentence("report", str(page))
        if settings.keep:
            _wait(shown)


def contextual(
    people: People = 4000,
    out: Out = Path("demo-output"),
    seed: Seed = 1,
    keep: Keep = False,
    as_json: Json = False,
) -> None:
    """Learn which option is best for whom, live on this machine: two servers, and simulated
    devices that choose by their participant's context. It ends by itself.
    """
    settings = _settings(people, seed, keep=keep, contextual=True)
    _play(settings, out, "contextual.html", as_json)


def _settings(people: int, seed: int, **more: Any) -> DemoSettings:
    """The checked settings of a demonstration."""
    with needs_live():
        from tacit.service.demo.play import DemoSettings

    if not LEAST <= people <= MOST:
        raise TacitError(f"people is {people:.4g}: must be from {LEAST} to {MOST:,}")
    return DemoSettings(people, integer("seed", seed, at_least=0), **more)


def _wait(progress: DemoProgress) -> None:
    """Wait until ^C."""
    page = f"{progress.addresses[0]}/e/{progress.status['digest']}"
    print(f"serving at {page} until ^C", file=sys.stderr)
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(1.0)


def _print_result(progress: DemoProgress) -> None:
    from tacit.service.demo import report

    best, sure, promise = report.answer(progress)
    print_sentence("which is best", best)
    print_sentence("how sure", sure)
    print_sentence("promised", promise)
    if progress.estimates["contexts"] is not None:
        _print_segments(progress)
    rows: list[list[Any]] = [
        [
            one["option"],
            one["participants"],
            one["mean"],
            f"{one['low']:.1%} to {one['high']:.1%}",
            f"{one['best']:.0%}",
            one["decision"],
        ]
        for one in progress.estimates["options"]
    ]
    heads = ["option", "answers", "mean", "95% interval", "best (about)", "verdict"]
    if rows:
        print_table(progress.status["question"], heads, rows)
    print_sentence("sent", " ".join(report.sent(progress)))
    print_sentence("rejected", " ".join(report.rejected(progress)))
    note = "everything ran here: this shows the protocol, not the separation of trust"
    print_sentence("note", note)


def _print_segments(progress: DemoProgress) -> None:
    """Which option for whom, as a table."""
    from tacit.service.pages.contexts import described, gained

    rows: list[list[Any]] = [
        [
            described(one["context"]),
            one["option"],
            one["mean"],
            f"{one['low']:.1%} to {one['high']:.1%}",
            one["decision"],
        ]
        for one in progress.estimates["contexts"]["answers"]
    ]
    print_table(
        "which option for whom", ["segment", "option", "mean", "95% interval", "verdict"], rows
    )
    for line in gained(progress.estimates["contexts"]["gains"]):
        print_sentence("gain", line)


@contextmanager
def _progress(as_json: bool) -> Iterator[Callable[[str, DemoProgress | None], None] | None]:
    """A progress line on standard error; none with JSON."""
    if as_json:
        yield None
        return
    from rich.console import Console

    console, last = Console(stderr=True), ""
    with console.status("setting up") as line:

        def show(stage: str, shown: DemoProgress | None) -> None:
            nonlocal last
            if stage != last:
                last = stage
                console.print(f"  {stage}", soft_wrap=True, highlight=False)
            if shown is not None:
                line.update(_summary(shown))

        yield show


def _summary(progress: DemoProgress) -> str:
    status, people = progress.status, progress.status["people"]
    ended = sum(one["stage"] in ("opened", "refused") for one in status["rounds"])
    leader = status["decided"] or (f"{status['best']} leads" if status["best"] else "learning")
    return (
        f"{progress.seconds:.0f} s, {people['asked']:,} asked, {people['reported']:,} answers, "
        f"{ended} rounds over: {leader}"
    )


def noise(
    out: Annotated[Path, option("Directory for the pictures.")] = Path("demo-output"),
    as_json: Json = False,
) -> None:
    """Compare the trust models at the same guarantee: noise and regret, as tables and pictures."""
    from tacit.papers.bounds import with_bounds
    from tacit.simulation import files
    from tacit.studies import demo as demonstration

    files.probe(out)
    rows = demonstration.noise_table()
    noise, regret = out / "noise.png", out / "regret.png"
    demonstration.draw(rows, noise)
    results = {k: with_bounds(v) for k, v in demonstration.regret_results().items()}
    demonstration.draw_regret(results, regret)
    if as_json:
        summaries = {label: result.summary() for label, result in results.items()}
        print_json({"noise": rows, "regret": summaries, "pictures": [str(noise), str(regret)]})
        return
    sizes = demonstration.SIZES
    names = dict.fromkeys(str(row["trust"]) for row in rows)
    body: list[list[Any]] = [
        [name, *(row["std"] for row in rows if row["trust"] == name)] for name in names
    ]
    body.append(
        ["(sampling error of a coin)", *(row["sampling_std"] for row in rows[: len(sizes)])]
    )
    print_table(
        f"noise in the mean (standard deviation), by participants; {demonstration.GUARANTEE}",
        ["trust model", *(f"{n:,}" for n in sizes)],
        body,
    )
    ordered = sorted(results.items(), key=lambda item: item[1].regret_mean)
    lost = [
        [label, r.regret_mean, r.regret_sem, r.mean("bits_per_user"), r.short]
        for label, r in ordered
    ]
    size = f"{demonstration.HORIZON:,} users, {demonstration.RUNS} runs"
    title = f"regret on one problem, {size}"
    print_table(title, ["trust model", "regret", "± s.e.", "bits per user", "guarantee"], lost)
    print(f"pictures: {noise} {regret}")


def silos(
    patients: Annotated[int, option("Patients of each of the four hospitals.", **Whole)] = 2000,
    pace: Annotated[
        int | None, option("Milliseconds per patient; as this machine can, if not given.", **Whole)
    ] = None,
    out: Annotated[Path, option("Directory for the report.")] = Path("demo-output"),
    seed: Annotated[int, option("Seed of the generated patients.", **Whole)] = 1,
    as_json: Json = False,
) -> None:
    """Let four hospitals learn one policy: an agent each, over NVIDIA FLARE processes of this
    machine, with generated patients whose outcomes come late or never.
    """
    with needs_live():
        from tacit.silos.demo import report
        from tacit.silos.demo.play import play
    from tacit.simulation import files

    if not 100 <= patients <= 100_000:
        raise TacitError(f"patients is {patients}: must be from 100 to 100,000")
    integer("seed", seed, at_least=0)
    if pace is not None:
        integer("pace", pace, at_least=1)
    files.probe(out)
    with _stopped_by_signal(), _stages(as_json) as watch:
        shown = play(seed, patients, pace, watch)
    page = out / "silos.html"
    with files.atomic_file(page) as partial:
        partial.write_text(report.page(shown), encoding="utf-8")
    result = shown.result
    if as_json:
        record = {
            "shared": result.shared,
            "own": list(result.own),
            "at_home": [list(pair) for pair in result.at_home],
            "better": result.better,
            "received": result.received,
            "in_time": list(shown.in_time),
            "seconds": shown.seconds,
            "report": str(page),
        }
        print_json(record)
        return
    print_sentence("result", report.answer(shown))
    rows: list[list[Any]] = [
        [silo.name, f"{own:.4f}", f"{home[1]:.4f}", f"{home[0]:.4f}", status["decisions"]]
        for silo, own, home, status in zip(
            shown.terms.silos, result.own, result.at_home, shown.statuses, strict=True
        )
    ]
    heads = ["hospital", "alone", "alone, own patients", "shared, own patients", "patients"]
    print_table("mean regret on held-out patients", heads, rows)
    print_sentence("shared policy, on all", f"{result.shared:.4f}")
    print_sentence("report", str(page))
    if not report.can_draw():
        print_sentence("note", "the report has no pictures; they need pip install 'tacit[plot]'")
    print_sentence(
        "case mix", f"{report.CASE_MIX}; where it treats all kinds, sharing may not help"
    )
    print_sentence(
        "note", "all processes ran here: this shows the protocol, not the separation of trust"
    )


@contextmanager
def _stages(as_json: bool) -> Iterator[Callable[[str], None]]:
    """Print each stage on standard error; nothing with JSON."""
    if as_json:
        yield lambda _stage: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    yield lambda stage: console.print(f"  {stage}", soft_wrap=True, highlight=False)


GROUPS = {
    "demo": CommandGroup(
        demo.__doc__, {"contextual": contextual, "noise": noise, "silos": silos}, demo
    )
}


@contextmanager
def _stopped_by_signal() -> Iterator[None]:
    """Let SIGTERM end the demonstration as ^C does."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
