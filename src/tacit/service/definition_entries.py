"""The entries of a definition file: the key, description, default and rules of each.

`definition.Definition` derives the terms, the experiment and the timing from them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator
from pydantic_core import PydanticUndefined

from tacit import readers
from tacit.readers import duration_within, words
from tacit.service import context_entries as contexts
from tacit.service import definition_defaults as defaults
from tacit.service import definition_rules as rules
from tacit.service import fitted_entries as fits
from tacit.service import option_tables
from tacit.terms import LONGEST_GRACE, MOST_NO_SHOW

DAY = 86_400


def _entry(place: str, about: str, default: Any = PydanticUndefined, **more: Any) -> Any:
    """A field of the definition: its key in the file, its description and its default."""
    return Field(default, validation_alias=place, description=about, **more)


class DefinitionEntries(BaseModel):
    """All entries of a definition, in the order of the file; None means that there is no value."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, validate_by_name=True
    )

    question: Annotated[str, words(500)] = _entry(
        "question", "What you want to know. Every participant reads this."
    )
    organisation: Annotated[str, words(200, optional=True)] = _entry(
        "organisation", "Who asks: the organisation that participants read.", ""
    )
    purpose: Annotated[str, words(1000, optional=True)] = _entry(
        "purpose", "What the result is for. A new purpose is shown again.", ""
    )
    contact: Annotated[str, words(200, optional=True)] = _entry(
        "contact", "Where participants write to: an address or a page.", ""
    )
    trust: Annotated[
        Literal["two-servers", "local", "shuffler", "secure-aggregation"],
        AfterValidator(rules.check_served),
    ] = _entry(
        "trust",
        "Whom participants must trust. two-servers: one of two. local: nobody; needs many more\n"
        "people. shuffler: a shuffler that does not work with you. secure-aggregation: you, to\n"
        "follow the protocol.",
        "two-servers",
    )
    proofs: Annotated[bool, AfterValidator(rules.check_proofs)] = _entry(
        "proofs",
        "true: every report proves that it is a possible answer (two-servers only).",
        False,
    )
    options_file: Annotated[str, words(1000, optional=True)] = _entry(
        "options_file",
        "For many options with features in which the answer is linear, in place of options: a CSV\n"
        "file beside this one, with the columns option and one for each feature.",
        "",
    )
    options_table: Annotated[
        str, PlainValidator(option_tables.table_text), AfterValidator(rules.check_file_content)
    ] = _entry("options_table", "The content of that file, as the coordinator gets it.", "")
    plays: Annotated[readers.Count | None, AfterValidator(fits.check_plays)] = _entry(
        "plays",
        "With a file of options: how many of them each participant tries, one after the other;\n"
        "the device reports one parameter fitted to all answers. Default: each tries one.",
        None,
    )
    algorithm: Annotated[str, words(), AfterValidator(rules.check_algorithm)] = _entry(
        "algorithm",
        "How options are chosen: see `tacit algorithms`. Default: private-med; private-pe with\n"
        "a file of options, private-dpe where each participant tries several.",
        default_factory=defaults.default_algorithm,
    )
    options: Annotated[
        readers.Texts, readers.listed('["Hello", "Hi"]'), AfterValidator(rules.check_options)
    ] = _entry("options", "What participants are given: one of these.")
    control: Annotated[str, words(200), AfterValidator(rules.check_control)] = _entry(
        "control",
        "The option that you have today; the others are compared with it. Default: the first.",
        default_factory=lambda found: found["options"][0],
    )
    control_share: Annotated[readers.Part, AfterValidator(rules.check_control_share)] = _entry(
        "control_share",
        "At least this share of participants get the control, and as many each other option until\n"
        "it is shown to be worse. 0: whichever leads. Default: 80% of all, split evenly, where\n"
        "the algorithm tries options side by side.",
        default_factory=defaults.default_control_share,
    )
    succeeds: readers.Digest = _entry(
        "succeeds",
        "To change the options or the days of a running experiment: the digest of its terms.\n"
        "The answer stays as it is, and no participant may be promised less.",
        b"",
    )
    context_fields: Annotated[
        readers.Texts,
        readers.listed('["device: phone, desktop"]'),
        AfterValidator(contexts.check_context),
    ] = _entry(
        "contextual.fields",
        "With algorithm private-contextual: what devices know about their participant and choose\n"
        'by, each field as "name: value, value", or "name: 18 to 90" for a number.',
        (),
    )
    interactions: Annotated[
        readers.Texts,
        readers.listed('["age: friendly"]'),
        AfterValidator(contexts.check_interactions),
    ] = _entry(
        "contextual.interactions",
        'With corners or moments: for which options a field matters, each as "age: new, other".\n'
        "Default: every field for every option.",
        (),
    )
    statistic: Annotated[str, words(optional=True), AfterValidator(contexts.check_statistic)] = (
        _entry(
            "contextual.statistic",
            '"table": one cell for every context and option; at most 80. "moments": features and\n'
            'their products, with numbers or many cells. "corners": one cell for features rounded\n'
            "at random, without delta; not in browsers. Default: a table where it is small enough.",
            default_factory=contexts.usual_statistic,
        )
    )
    evaluation: Annotated[readers.Part, AfterValidator(contexts.check_slice)] = _entry(
        "contextual.evaluation",
        "The share of participants who get an option at random, to measure what choosing by\n"
        "context gains. Default: 10% with contexts.",
        default_factory=defaults.default_evaluation,
    )
    exploration: Annotated[readers.Part, AfterValidator(contexts.check_exploration)] = _entry(
        "contextual.exploration",
        "The share of every segment that gets an option at random until one is shown to be the\n"
        "best there. 0: whichever leads, so a decision may take long. Default: 20% with tables.",
        default_factory=defaults.default_exploration,
    )
    meaning: Annotated[str, words(2000)] = _entry(
        "answer.meaning", "What a device reports, in the words that participants read."
    )
    metric: Annotated[str, words()] = _entry("answer.metric", "A short name for it.", "answer")
    low: readers.Number = _entry("answer.low", "The minimum; less counts as this.", Fraction(0))
    high: Annotated[readers.Number, AfterValidator(rules.check_range)] = _entry(
        "answer.high", "The maximum; more counts as this.", Fraction(1)
    )
    levels: Annotated[
        readers.Count,
        AfterValidator(contexts.check_levels),
        AfterValidator(rules.check_certified_levels),
    ] = _entry(
        "answer.levels",
        "Steps between the two: 1 for yes or no, 4 for one to five stars. Values in between are\n"
        "rounded at random, without bias.",
        default_factory=defaults.default_levels,
    )
    labels: Annotated[
        readers.Texts, readers.listed('["No", "Yes"]'), AfterValidator(rules.check_labels)
    ] = _entry(
        "answer.labels",
        "The words that participants choose from, one for each value, the lowest first. Without\n"
        'them participants type a number. Default: "No" and "Yes" from 0 to 1 in one step.',
        default_factory=defaults.default_labels,
    )
    window: Annotated[readers.Duration, duration_within()] = _entry(
        "answer.window", "How long a device watches before it reports. It reports in any case."
    )
    participants: readers.Count | None = _entry(
        "people.participants",
        "Number of participants whose reports are released, in all. Default: no limit until the\n"
        "last day.",
        None,
    )
    participations: Annotated[readers.Count, AfterValidator(contexts.check_participations)] = (
        _entry(
            "people.participations",
            "How often one person may take part; the promise covers all of it together.",
            1,
        )
    )
    admission: Literal["open", "invitation"] = _entry(
        "people.admission", '"open": anyone may take part. "invitation": those you invited.', "open"
    )
    issuer: Annotated[readers.OptionalKey, AfterValidator(rules.check_issuer)] = _entry(
        "people.issuer",
        "Who signs invitations, as a public key. Default: you. Where devices share the noise it\n"
        "must be somebody else, who could otherwise invent participants.",
        b"",
    )
    missing: Annotated[readers.Part, AfterValidator(rules.check_shared_noise)] = _entry(
        "people.missing",
        "Where devices share the noise: the share of a round that may not report. A round with\n"
        "fewer reports is not released. Default: 20% there, 0 elsewhere.",
        default_factory=defaults.default_missing,
    )
    dishonest: Annotated[readers.Part, AfterValidator(rules.check_honest_left)] = _entry(
        "people.dishonest",
        "Where devices share the noise: the share of a round that may be invented or may leave\n"
        "the noise out. Default: 10% there, 0 elsewhere.",
        default_factory=defaults.default_dishonest,
    )
    first_day: readers.Day = _entry("people.first_day", "The first day, in UTC.")
    last_day: Annotated[readers.Day, AfterValidator(rules.check_last_day)] = _entry(
        "people.last_day", "The last day; every round closes before it ends."
    )
    dropout: readers.Part = _entry(
        "people.dropout",
        "The share of participants who may drop out before they report.",
        Fraction(1, 10),
    )
    no_show: Annotated[
        readers.Part, Field(le=MOST_NO_SHOW), AfterValidator(contexts.check_no_show)
    ] = _entry(
        "people.no_show",
        "The share of slots that are taken and never reported, as you expect it: at most 9/10.\n"
        "Every round offers so many more slots. Default: 0, none.",
        Fraction(0),
    )
    epsilon: readers.Positive = _entry(
        "promise.epsilon",
        "The promise: no answer makes anything that others learn more than e^epsilon times as\n"
        "likely as another answer would. 1 is strong, 5 is weak; a smaller one takes more people.",
    )
    delta: Annotated[readers.Part, AfterValidator(rules.check_delta)] = _entry(
        "promise.delta",
        "The probability of exceptions to the promise. Default: 0, or 0.000001 where devices\n"
        "share the noise, and with moments.",
        default_factory=lambda found: rules.usual_delta(
            found["trust"], found["statistic"], found["algorithm"]
        ),
    )
    min_batch_size: Annotated[
        readers.Count, Field(ge=2), AfterValidator(rules.check_participants)
    ] = _entry("promise.min_batch_size", "No sum of fewer reports than this is released.", 20)
    post_quantum: Annotated[bool, AfterValidator(rules.check_suite)] = _entry(
        "promise.post_quantum",
        "true: reports that somebody records stay secret from later quantum computers (ML-KEM-768\n"
        "beside X25519). Browsers cannot take part then. Default: false.",
        False,
    )
    joining: Annotated[readers.Duration, duration_within(1)] = _entry(
        "rounds.joining", "How long participants can join a round.", 6 * 3600
    )
    margin: Annotated[
        readers.Duration, duration_within(2), AfterValidator(rules.check_margin_fits)
    ] = _entry(
        "rounds.margin",
        "Time after the window in which reports arrive, each at a random moment.",
        3600,
    )
    grace: Annotated[readers.Duration, duration_within(1, LONGEST_GRACE)] = _entry(
        "rounds.grace",
        "How long round keys live after a round closes, so that it may still be released if a\n"
        "server was down: at most 7 days. It is part of the terms.",
        DAY,
    )
    most: Annotated[readers.Count | None, AfterValidator(rules.check_most_rounds)] = _entry(
        "rounds.most",
        "Maximum number of rounds, one after another.",
        default_factory=defaults.default_rounds,
    )
    guardrail: Annotated[str, words(optional=True), AfterValidator(rules.check_guardrail)] = _entry(
        "guardrail.metric",
        "A second number of the same range that must not get clearly worse than the control's;\n"
        "an option that makes it worse is paused. Describe it in answer.meaning, too. Both\n"
        "numbers share the promise, so each gets twice the noise. With contexts the evaluation\n"
        "slice measures it.",
        "",
    )
    guardrail_better: Literal["lower", "higher"] = _entry(
        "guardrail.better", "Which is better.", "lower"
    )
    guardrail_margin: Annotated[readers.Number, AfterValidator(rules.check_guardrail_margin)] = (
        _entry(
            "guardrail.margin",
            "How much worse than the control is tolerated, in units of the answer.",
            Fraction(0),
        )
    )
    helper_address: Annotated[
        readers.Address | None, AfterValidator(rules.check_helper_entry("address"))
    ] = _entry(
        "helper.address",
        "The second server, which another organisation runs; none with trust local or\n"
        "secure-aggregation.",
        None,
    )
    helper_key: Annotated[
        readers.PublicKey | None, AfterValidator(rules.check_helper_entry("key"))
    ] = _entry("helper.key", "Its key, as its operator told you over another channel.", None)
    baseline: readers.Number | None = _entry(
        "expected.baseline", "For the forecast only. The mean answer that you expect today,", None
    )
    lift: Annotated[readers.Positive | None, AfterValidator(rules.check_expected_means)] = _entry(
        "expected.lift", "how much better the best option may be,", None
    )
    per_day: readers.Count | None = _entry(
        "expected.per_day", "and how many people come in a day.", None
    )
