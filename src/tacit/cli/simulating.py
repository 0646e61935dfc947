"""The commands `simulate` and `compare`, and their output.

`tacit.cli` registers the functions as commands. `simulate` serves all families: the algorithm's
problem declares the options.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.algorithms.registry import check_together, lookup
from tacit.cli.guarantee_kinds import guarantee_numbers
from tacit.cli.options import (
    Algorithm,
    Json,
    Out,
    OwnData,
    Resume,
    Runs,
    Seed,
    given_options,
    interactive,
    option,
    warnings,
    with_problem_options,
)
from tacit.cli.printing import (
    INTERRUPTED,
    count_of,
    format_cell,
    no_less,
    print_json,
    print_sentence,
    print_table,
)
from tacit.errors import TacitError
from tacit.rounding import up

if TYPE_CHECKING:
    from tacit.simulation import Result, Results

MOST_ANSWERS = 20  # rows of a table
ROUNDED_UP = ("epsilon", "delta")  # numbers of guarantees


@with_problem_options
def simulate(
    algorithm: Algorithm,
    runs: Runs = 20,
    seed: Seed = 0,
    user_by_user: Annotated[
        bool, option("Simulate every participant, instead of all at once (slow).")
    ] = False,
    until_decided: Annotated[
        bool, option("Stop each run once an option is shown to be the best.")
    ] = False,
    poisoned: Annotated[
        float, option("Fraction of participants who report against the best option.")
    ] = 0.0,
    out: Out = None,
    resume: Resume = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Simulate one algorithm: its regret, the arm summary, its guarantee and communication.

    Options an algorithm does not support are rejected; `tacit simulate --algorithm NAME --help`
    shows those of NAME, with their defaults.

    Examples:

    tacit simulate --algorithm dist-dp-se --epsilon 1 --arms 10 --instance easy --horizon 1e6

    tacit simulate --algorithm cdp-dpe --dimension 20 --actions 1000 --epsilon 1

    tacit simulate --algorithm secagg-fedlinucb --silos 20 --horizon 2000
    """
    own_data, entry, given = OwnData.taken(options), lookup(algorithm), given_options(options)
    if resume and out is None:
        raise TacitError("--resume continues the log in --out: give the directory")
    check_together(given)
    problem = entry.make_problem(given)  # reject bad options before anything is loaded or read
    environment = own_data.environment(entry.family)
    from tacit.simulation import files, study

    if out is not None:
        files.probe(out)
    if environment is not None:
        problem = entry.make_problem(study.complete_options(entry, environment, given))
    log = None if out is None else out / f"{algorithm}.jsonl"
    flags: dict[str, Any] = {"until_decided": until_decided, "poisoned": poisoned}
    how = study.RunConfig(runs, seed, interactive(), None, log, user_by_user, resume, **flags)
    result = study.study(entry, problem, how, environment)
    if entry.family == "federated" and own_data.replay is not None and out is not None:
        learned = own_data.silos().policy(result.runs[0])
        (out / "policy.json").write_text(learned.to_json(), encoding="utf-8")
    report(result, environment, as_json, out)


@with_problem_options
def compare(
    algorithms: Annotated[
        str, option("Names, comma-separated; see: tacit algorithms.")
    ] = "private-med,private-klucb,dist-dp-se,cdp-se,split-dp-se,vb-sdp-ae,ldp-se",
    runs: Runs = 20,
    seed: Seed = 0,
    out: Annotated[Path, option("Directory for the picture and the table.")] = Path(
        "compare-output"
    ),
    resume: Resume = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Compare several algorithms on the same problems: one picture, one table.

    Example: tacit compare --algorithms private-med,dist-dp-se,ldp-se --epsilon 1
    """
    own_data, given = OwnData.taken(options), given_options(options)
    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    entries = [lookup(name) for name in names]
    families = sorted({entry.family for entry in entries})
    if len(families) != 1 or len(set(names)) < len(names):
        raise TacitError(
            f"--algorithms is {algorithms!r}: must be different names of one family, separated "
            "by commas" + (f", not of {' and '.join(families)}" if len(families) > 1 else "")
        )
    check_together(given)
    environment = own_data.environment(families[0])
    from tacit.simulation import files, study

    files.probe(out)
    how = {"runs": runs, "seed": seed, "progress": interactive(), "log": out, "resume": resume}
    compared = study.compare(entries, environment, **given, **how)
    report_comparison(compared, environment, out, as_json, len(names))


def summarised(result: Result) -> dict[str, Any]:
    """The summary of a result that `--json` prints."""
    stated = result.guarantee_json() or {}
    clipped = result.mean("clipped") if result.runs and "clipped" in result.runs[0] else 0.0
    from tacit.simulation.study import in_theorem_form

    found = warnings(stated.get("epsilon"), stated.get("delta"), clipped)
    cautions = lookup(result.algorithm).cautions
    chosen = [cautions.get(result.configuration.get(name, "")) for name in ("constants", "mode")]
    found += [f"{result.algorithm}: {caution}" for caution in chosen if caution]
    other = in_theorem_form(result)
    also = {} if other is None else {"restated": other.to_dict() | guarantee_numbers(other, True)}
    return result.summary() | also | {"rounds": result.mean("rounds"), "warnings": found}


def recorded_rows(result: Result, environment: Any) -> dict[str, Any]:
    """Rows of the user's own data that were used, and their effect on the guarantee."""
    if environment is None:
        return {}
    used = result.mean("rows_used") if "rows_used" in result.runs[0] else None
    counts = {"rows": environment.rows, "rows_used": used, "clipped": environment.clipped}
    return {"replay": {**counts, "people": environment.remark.text()}}


def report(result: Result, environment: Any, as_json: bool, out: Path | None) -> None:
    """Write the table and print the summary; after an interrupt, exit with 130."""
    from tacit.simulation import write_csv

    if out is not None:
        write_csv(out / f"{result.algorithm}.csv", result.curves())
    summary = summarised(result) | recorded_rows(result, environment)
    if as_json:
        print_json(summary)
    else:
        summary["seconds"] = round(summary["seconds"], 2)
        rows = [
            [label, summary[key]]
            for key, label in labels(lookup(result.algorithm).problem.per).items()
            if summary.get(key) is not None
        ]
        one_world = environment is not None or result.configuration.get("means") is not None
        if "winner" in summary and one_world:
            share = f"{summary['winner_runs']} of {count_of('run', *[len(result.runs)] * 2)}"
            rows.append(["best option", f"{summary['winner']} (in {share})"])
        if one_world:
            rows += paused_rows(summary.get("paused_runs", {}), len(result.runs))
        title = f"{result.algorithm}, {count_of('run', len(result.runs), result.done.asked)}"
        print_table(title, None, rows)
        print_estimates(summary.get("estimates", []))
        print_answers(summary)
        if result.configuration.get("guardrail"):
            print_guardrail(summary.get("estimates", []), result.configuration)
        print_sentence("guarantee", result.guarantee_text)
        if "restated" in summary:
            print_sentence("as in the theorem", as_in_theorem(summary["restated"]))
        if "statistic" in result.runs[0]:
            print_sentence("statistic", result.runs[0]["statistic"])
        settings = [
            f"{key.replace('_', ' ')} "
            f"{no_less(value) if key in ROUNDED_UP else format_option(value)}"
            for key, value in result.configuration.items()
            if value is not None and key != "people"
        ]
        print_sentence("configuration", ", ".join(settings))
        print_notes(summary, environment)
    exit_after_interrupt(result.done.interrupted, len(result.runs), result.done.asked)


def as_in_theorem(record: dict[str, Any]) -> str:
    """The Rényi divergences or ρ of a guarantee, as a sentence."""
    if "rho" in record:
        return f"{up(record['rho'])}-zCDP, to the same adversary and under the same assumptions."
    curve = ", ".join(f"({order:g}, {up(value)})" for order, value in record["renyi_curve"])
    return f"(α, ε(α))-RDP at {curve}, to the same adversary and under the same assumptions."


def labels(per: str) -> dict[str, str]:
    """Labels of the numbers of a summary."""
    return {
        "horizon": f"{per}s",
        "regret_mean": "regret",
        "regret_sem": "± standard error",
        "time_average_regret": f"regret per {per}",
        "group_regret_per_round": "regret of all silos per round",
        "single_regret": "regret of the best single option",
        "uniform_regret": "regret of uniform choice",
        "reward_mean": "mean reward",
        "final_realised_regret": "realised regret",
        "lower_bound": "lower bound (asymptotic, central DP)",
        "times_lower_bound": "times the lower bound",
        "rounds": "sequential rounds",
        "batches": "released sums",
        "active": "active options",
        "decided_part": "decided (fraction of runs)",
        "participants_to_decide": "participants until 9 of 10 runs are decided",
        "best_kept": "best option active (fraction of runs)",
        "wrapped": "wrapped sums",
        "repairs": "repaired matrices",
        "clipped": "clipped rewards (fraction)",
        "clients": "clients",
        "reals": "numbers sent in total",
        "communication": "bits sent in total",
        "bits_per_user": "bits per participant",
        "seconds": "seconds",
    }


def format_option(value: Any) -> str:
    """Format an option's value for a sentence."""
    if not isinstance(value, (tuple, list)):
        return format_cell(value)
    if value and isinstance(value[0], (tuple, list)):  # budgets of silos, as typed
        alike = ((pair, len(list(same))) for pair, same in groupby(value))
        return ",".join(
            f"{count}*" * (count > 1) + ":".join(map(no_less, pair)) for pair, count in alike
        )
    return ",".join(map(format_cell, value))


def print_notes(summary: dict[str, Any], environment: Any) -> None:
    """Print warnings and notes about the data."""
    for line in summary["warnings"]:
        print_sentence("note", line)
    if environment is None:
        return
    about = summary["replay"]
    used = about["rows_used"]
    rows = f"{about['rows']:,} recorded rows"
    print_sentence(
        "data",
        f"{rows}, drawn from with replacement"
        if used is None
        else f"{used:,.0f} of {rows} used"
        + (" (mean over runs)" if len(summary["runs"]) > 1 else ""),
    )
    served = [run["users"] for run in summary["runs"] if run["users"] < summary["horizon"]]
    if served:
        per = lookup(summary["algorithm"]).problem.per
        print_sentence(
            "note", f"the log ended after {max(served):,} of {summary['horizon']:,} {per}s"
        )
    if about["clipped"]:
        print_sentence("note", f"{about['clipped']:,} rewards outside [0, 1] were clipped")
    if about["people"] not in (summary["guarantee"] or {}).get("text", ""):
        print_sentence("participants", about["people"])


def paused_rows(runs: dict[str, int], all_runs: int) -> list[list[Any]]:
    """Rows of the options that the guardrail paused, with their number of runs."""
    of = f"of {count_of('run', *[all_runs] * 2)}"
    return [["paused by the guardrail", f"{option} (in {n} {of})"] for option, n in runs.items()]


MISREAD = "unavailable"  # the decision where sums are misread too often
NO_INTERVALS = (
    "no 95% intervals and no decisions: the printed modulus is so small that sums are misread "
    "(they wrap around) with a probability that leaves nothing of the 5%. Active options are those "
    "that the learner's own radii leave. Use --constants tight for intervals."
)


def print_estimates(rows: list[dict[str, Any]]) -> None:
    """Print the arm summary at the end of the first run, best option first."""
    if not rows:
        return
    ordered = sorted(rows, key=lambda row: -row["best"])[:10]
    headings = [
        "option",
        "participants",
        "mean",
        "95% interval",
        "lift",
        "best (approx.)",
        "decision",
    ]
    body = [
        [
            row["option"],
            row["participants"],
            row["mean"],
            "–" if row["decision"] == MISREAD else f"{row['low']:.4f} – {row['high']:.4f}",
            format_lift(row),
            f"{row['best']:.1%}",
            row["decision"],
        ]
        for row in ordered
    ]
    first = "" if len(rows) == len(ordered) else f", the first {len(ordered)} of {len(rows)}"
    always = all(row["always"] for row in rows)
    when = "anytime-valid" if always else "normal approximation"
    print_table(f"arm summary of the first run ({when}){first}", headings, body)
    if any(row["decision"] == MISREAD for row in rows):
        print_sentence("note", NO_INTERVALS)


def print_answers(summary: dict[str, Any]) -> None:
    """Print which option is best for whom at the end of the first run, and the gain of that."""
    if answers := summary.get("answers"):
        body = [
            [
                ", ".join(f"{name} {format_cell(value)}" for name, value in row["context"].items()),
                row["option"],
                row["mean"],
                f"{row['low']:.4f} – {row['high']:.4f}",
                row["decision"],
            ]
            for row in answers[:MOST_ANSWERS]
        ]
        more = f", the first {len(body)} of {len(answers)}" if len(answers) > len(body) else ""
        title = f"which option for whom, first run (anytime-valid){more}"
        print_table(title, ["context", "option", "mean", "95% interval", "decision"], body)
    if gains := summary.get("gains"):
        body = [
            [row["option"], row["gain"], f"{row['low']:+.4f} – {row['high']:+.4f}"] for row in gains
        ]
        title = "mean reward above one option for everybody (anytime-valid)"
        print_table(title, ["option for everybody", "gain", "95% interval"], body)


def print_guardrail(rows: list[dict[str, Any]], configuration: dict[str, Any]) -> None:
    """Print the estimates of the guardrail metric, and the options that it paused."""
    name, better = configuration["guardrail"], configuration["guardrail_better"]
    body = [
        [
            row["option"],
            row["guardrail"],
            f"{row['guardrail_low']:.4f} – {row['guardrail_high']:.4f}",
            "yes" if row["paused"] else "–",
        ]
        for row in rows
    ]
    if body:
        title = f"guardrail of the first run: {name}, {better} is better"
        print_table(title, ["option", "mean", "95% interval", "paused"], body)
    for row in rows:
        if row["paused"]:
            print_sentence("paused", f"{row['option']}: {row['paused']}")
    print_sentence("note", "regret is that of the first metric, against its best option")


def format_lift(row: dict[str, Any]) -> str:
    """Format an option's lift over the first option, with its interval."""
    if row["lift_low"] is None:
        return "–"
    if row["decision"] == MISREAD:
        return "–" if row["lift"] is None else f"{row['lift']:+.0%}"
    high = "∞" if row["lift_high"] is None else f"{row['lift_high']:+.0%}"
    middle = "–" if row["lift"] is None else f"{row['lift']:+.0%}"
    return f"{middle} ({row['lift_low']:+.0%} – {high})"


def exit_after_interrupt(interrupted: bool, done: int, requested: int, then: str = "") -> None:
    """After an interrupt, print the progress on standard error and exit with 130."""
    if interrupted:
        typer.echo(f"tacit: interrupted, {done} of {requested}{then}", err=True)
        raise typer.Exit(INTERRUPTED)


def report_comparison(
    compared: Results, environment: Any, out: Path, as_json: bool, requested: int
) -> None:
    """Print one table and draw one plot; without matplotlib, only the table."""
    from tacit.simulation import write_csv

    write_csv(out / "regret.csv", compared.curves())
    picture, missing = draw(compared, out / "regret.png")
    summaries = [summarised(result) | recorded_rows(result, environment) for result in compared]
    if as_json:
        drawn = None if picture is None else str(picture)
        print_json({"results": summaries, "picture": drawn})
    else:
        print_comparison(compared)
        for line in dict.fromkeys(line for summary in summaries for line in summary["warnings"]):
            print_sentence("note", line)
        if environment is not None:
            print_sentence("participants", environment.remark.text())
        print_sentence("no picture" if missing else "picture", missing or str(picture))
    done = sum(not result.done.interrupted for result in compared)
    exit_after_interrupt(done < requested, done, requested)


def draw(compared: Results, path: Path) -> tuple[Path | None, str]:
    """Draw the plot of a comparison, or say why there is none."""
    from tacit.papers.bounds import with_bounds
    from tacit.simulation.pictures import Panel, draw_panels

    if not all(result.regret_known for result in compared):
        return None, "the true means are unknown, so regret is unknown"
    panel = Panel(
        comparison_title(compared), {result.algorithm: with_bounds(result) for result in compared}
    )
    try:
        draw_panels([panel], path, per=lookup(compared[0].algorithm).problem.per)
    except TacitError as error:
        return None, str(error)
    return path, ""


def comparison_title(compared: Results) -> str:
    """The title of a comparison: horizon and number of runs."""
    horizons = dict.fromkeys(f"{result.horizon:,}" for result in compared)
    per = lookup(compared[0].algorithm).problem.per
    runs = {len(result.runs) for result in compared}
    each = f", {count_of('run', *[min(runs)] * 2)} each" if len(runs) == 1 else ""
    return f"{' or '.join(horizons)} {per}s{each}"


def participations_note(compared: Results) -> str:
    """The participations that the guarantees of a comparison cover."""
    from tacit.privacy.guarantees import times

    names: dict[int, list[str]] = {}
    for result in compared:
        if result.guarantee is not None:
            names.setdefault(result.guarantee.participations, []).append(result.algorithm)
    often = [
        f"participants who take part at most {times(count)}"
        + (f" ({', '.join(who)})" if len(names) > 1 else "")
        for count, who in sorted(names.items())
    ]
    if not often:
        return "participants have no guarantee"
    return f"for {', '.join(often)}; assumptions are in --json"


def print_comparison(compared: Results) -> None:
    """Print the table of a comparison, least regret first."""
    known = all(result.regret_known for result in compared)
    differ = len({len(result.runs) for result in compared}) > 1
    bounded = any(result.times_lower_bound is not None for result in compared)
    headings = ["algorithm", "regret", "± s.e.", *(["times bound"] if bounded else [])]
    headings += ["bits each", "rounds", "seconds", "guarantee"]
    rows = [
        [
            result.algorithm,
            result.regret_mean if known else None,
            result.regret_sem if known else None,
            *([result.times_lower_bound] if bounded else []),
            result.mean("bits_per_user"),
            result.mean("rounds"),
            round(result.done.seconds, 2),
            result.short,
            *([len(result.runs)] if differ else []),
        ]
        for result in sorted(compared, key=lambda r: r.regret_mean if known else 0.0)
    ]
    print_table(comparison_title(compared), [*headings, *(["runs"] if differ else [])], rows)
    print_sentence("guarantee", participations_note(compared))
    if bounded:
        print_sentence(
            "bound",
            "asymptotic lower bound on regret with a trusted server; with few participants, less "
            "is possible",
        )
