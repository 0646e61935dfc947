"""Commands for definitions of live experiments: `new` writes one, `check` explains and
forecasts.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from tacit.cli.operating import needs_live, print_lines, write_new
from tacit.cli.options import Json, Whole, argument, interactive, option
from tacit.cli.printing import print_json, print_sentence
from tacit.errors import TacitError, one_of
from tacit.trust import DEPLOYABLE, TrustModel

File = Annotated[Path, argument("Definition file, TOML or YAML.")]


def new(
    file: File,
    question: Annotated[str, option("The question that participants read.")] = "",
    option: Annotated[list[str] | None, option("Name of an option; repeatable.")] = None,
    options_file: Annotated[
        Path | None, option("CSV beside the definition: column option, and features.")
    ] = None,
    meaning: Annotated[str, option("What a device reports, in words.")] = "",
    epsilon: Annotated[str, option("Privacy parameter, such as 1 or 1/2.")] = "1",
    participants: Annotated[int, option("Number of participants.", **Whole)] = 20_000,
    window: Annotated[str, option("How long a device watches before it reports.")] = "1 day",
    joining: Annotated[str, option("How long a round can be joined.")] = "6 hours",
    margin: Annotated[str, option("Time for reports to arrive.")] = "1 hour",
    days: Annotated[int, option("Duration in days, from today.", **Whole)] = 30,
    trust: Annotated[str, option(f"Trust model: {', '.join(DEPLOYABLE)}.")] = DEPLOYABLE[0].value,
    algorithm: Annotated[
        str | None, option("How options are chosen: see tacit algorithms.")
    ] = None,
    context: Annotated[
        list[str] | None,
        option(
            'Field that devices choose by: "device: phone, desktop" or "age: 18 to 90"; repeatable.'
        ),
    ] = None,
    helper: Annotated[Path | None, option("The card.toml from the helper's operator.")] = None,
    issuer: Annotated[
        Path | None, option("The card.toml of who signs invitations; without it anyone may join.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a definition with a comment for every entry, to be edited.

    Example: tacit experiment new greeting.toml --option Hello --option Hi
    """
    with needs_live():
        from tacit.readers import checked
        from tacit.service import bootstrap, definition, definition_files, issuers, option_tables
        from tacit.service.context_entries import CONTEXTUAL, context_field
        from tacit.service.definition_rules import has_option
        from tacit.terms import ROLES
    today = datetime.now(UTC).date()
    if not 1 <= days <= LONGEST:
        raise TacitError(f"--days is {days:.4g}: must be from 1 to {LONGEST:,}")
    values: dict[str, Any] = {
        "question": question or "Which greeting do people like best?",
        "options": tuple(option or ("Hello", "Hi", "Good day")),
        "meaning": meaning or "whether you wrote back within the time",
        "first_day": today,
        "last_day": today + timedelta(days=days),
        "epsilon": epsilon,
        "participants": participants,
        "window": window,
        "joining": joining,
        "margin": margin,
    }
    one_of("trust", trust, DEPLOYABLE)
    values |= {"trust": trust} | ({} if algorithm is None else {"algorithm": algorithm})
    if options_file is not None:
        if option:
            raise TacitError("--option and --options-file both name options: use one of them")
        del values["options"]
        values["options_file"] = str(options_file)
        values["options_table"] = option_tables.load_text(file.parent / options_file)
    if context:
        for one in context:
            checked("--context", one, context_field)
        values |= {"algorithm": CONTEXTUAL, "context_fields": tuple(context)}
    helped = len(ROLES[TrustModel(trust)]) > 1
    if helper is not None and not helped:
        raise TacitError(f"--helper is {helper}, but trust {trust} has no helper: leave it out")
    card = None if helper is None else bootstrap.read_card(helper)
    if card is not None and card.role != "helper":
        raise TacitError(f"{helper} is the card of a {card.role}: give the card of the helper")
    if helped:
        values["helper_address"] = "https://helper.example" if card is None else card.address
        values["helper_key"] = bytes(32) if card is None else card.key
    if issuer is not None:
        values |= {"admission": "invitation", "issuer": issuers.read_issuer(issuer)}
    made = definition.Definition.of(**values)
    left_out = _LEFT_OUT if context else (*_LEFT_OUT, *_CONTEXTUAL)
    shown = {name: value for name, value in vars(made).items() if name not in left_out}
    if options_file is not None:
        shown.pop("options")
    if made.trust_model is TrustModel.TWO_SERVERS and made.admission == "open":
        tables = made.context is not None and made.context.exact
        shown["proofs"] = tables or has_option(
            made.algorithm, "through"
        )  # anybody may send anything
    if card is None:
        shown.pop("helper_key")
    text = definition_files.write(shown, yaml=file.suffix in (".yaml", ".yml"))
    write_new(file, text)
    if as_json:
        print_json({"file": str(file)})
        return
    print_sentence("written", str(file))
    if card is None and helped:
        print_sentence(
            "next", "fill in [helper]: address and key are in the card of the helper's operator"
        )
    print_sentence("next", f"edit it, then: tacit experiment check {file}")


LONGEST = 3650
_CONTEXTUAL = ("context_fields", "interactions", "statistic", "evaluation", "exploration")
_LEFT_OUT = (
    "options_table",
    "control_share",
    "levels",
    "most",
    "guardrail_better",
    "guardrail_margin",
)


def check(
    file: File,
    forecast: Annotated[bool, option("Also simulate the experiment.")] = True,
    runs: Annotated[int, option("Number of simulated experiments.", **Whole)] = 20,
    as_json: Json = False,
) -> None:
    """Check a definition and explain it: guarantee, who sees what, duration, forecast.

    Example: tacit experiment check greeting.toml
    """
    with needs_live():
        from tacit.service import definition, definition_files
        from tacit.service import forecast as forecasting
        from tacit.service.coordinator import check_fits
        from tacit.service.stated import stated_guarantee
    defined = definition_files.load(file)
    terms = forecasting.as_published(defined)
    check_fits(terms, defined.experiment())  # as a coordinator does that is to publish it
    guarantee = stated_guarantee(terms, defined.experiment().guarantee)
    words = forecasting.explained(defined)
    doubts = list(forecasting.warnings(defined, datetime.now(UTC).date()))
    found = forecasting.forecast(defined, runs, interactive()) if forecast else None
    if as_json:
        entries = {
            place: _plain(getattr(defined, name)) for place, name in definition.ENTRIES.items()
        }
        predicted = None if found is None else {**vars(found), "words": list(found.sentences())}
        record = {"definition": entries, "words": words, "warnings": doubts, "forecast": predicted}
        print_json(record | {"guarantee": None if guarantee is None else guarantee.to_dict()})
        return
    for heading, lines in words.items():
        print(heading)
        print_lines(lines)
    if found is not None:
        print("What to expect")
        print_lines(list(found.sentences()))
    for doubt in doubts:
        print_sentence("warning", doubt)
    print_sentence("next", f"tacit experiment create {file} --config coordinator/party.toml")


def _plain(value: Any) -> Any:
    """A value of a definition as JSON has it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, (Fraction, date)) else value
