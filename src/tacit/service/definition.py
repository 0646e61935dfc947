"""Experiment definitions: the entries of one file that the experimenter can read and write.

A definition determines the terms (the guarantee for participants), the experiment (the learner)
and the timing of its rounds. All three use the same exact fraction as the noise scale.
`definition_files` reads and writes the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
)
from pydantic_core import PydanticUndefined

from tacit.errors import TacitError
from tacit.service import context_entries as contexts
from tacit.service import definition_defaults as defaults
from tacit.service import definition_rules as rules
from tacit.service import option_tables, readers
from tacit.service.definition_text import DefinitionError
from tacit.service.readers import lasting, words
from tacit.service.timing import Timing
from tacit.terms import (
    LEADING,
    LONGEST_GRACE,
    MOST_NO_SHOW,
    POST_QUANTUM_SUITE,
    ROLES,
    Aggregation,
    Answer,
    ContextTerms,
    Noise,
    Party,
    Promise,
    Terms,
)
from tacit.terms.context import TABLE_SENSITIVITY
from tacit.trust import TrustModel

if TYPE_CHECKING:
    from tacit.experiment import Experiment

ANYBODY = 10**15  # horizon of an experiment that ends only by its last day
DAY = 86_400


def _entry(place: str, about: str, default: Any = PydanticUndefined, **more: Any) -> Any:
    """A field of the definition: its place in the file, its description and its default."""
    return Field(default, validation_alias=place, description=about, **more)


class Definition(BaseModel):
    """The definition of an experiment. Fields are entries of the file.

    Entries that are left out get defaults, some derived from others (`control`, `control_share`,
    `levels`, `labels`, `most`). None means that there is no value. `of` reports all errors at once.

    >>> definition = Definition.of(
    ...     question="Which greeting do people like?", options=("Hello", "Hi"),
    ...     meaning="1 if they wrote back, 0 if not", window=3600, epsilon=Fraction(1, 2),
    ...     first_day="2026-11-16", last_day="2026-12-31",
    ...     helper_address="https://helper.example", helper_key=bytes(32),
    ... )
    >>> definition.control, definition.scale
    ('Hello', Fraction(2, 1))
    """

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
        AfterValidator(rules.served),
    ] = _entry(
        "trust",
        "Whom participants must trust. two-servers: one of two. local: nobody; needs many more\n"
        "people. shuffler: a shuffler that does not work with you. secure-aggregation: you, to\n"
        "follow the protocol.",
        "two-servers",
    )
    proofs: Annotated[bool, AfterValidator(rules.provable)] = _entry(
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
        str, PlainValidator(option_tables.table_text), AfterValidator(rules.content_of_file)
    ] = _entry("options_table", "The content of that file, as the coordinator gets it.", "")
    algorithm: Annotated[str, words(), AfterValidator(rules.known_algorithm)] = _entry(
        "algorithm",
        "How options are chosen: see `tacit algorithms`. Default: private-med, or private-pe with\n"
        "a file of options.",
        default_factory=defaults.algorithm,
    )
    options: Annotated[readers.Options, AfterValidator(rules.distinct)] = _entry(
        "options", "What participants are given: one of these."
    )
    control: Annotated[str, words(200), AfterValidator(rules.among_options)] = _entry(
        "control",
        "The option that you have today; the others are compared with it. Default: the first.",
        default_factory=lambda found: found["options"][0],
    )
    control_share: Annotated[readers.Part, AfterValidator(rules.reserved)] = _entry(
        "control_share",
        "At least this share of participants get the control, and as many each other option until\n"
        "it is shown to be worse. 0: whichever leads. Default: 80% of all, split evenly, where\n"
        "the algorithm tries options side by side.",
        default_factory=defaults.control_share,
    )
    succeeds: readers.Digest = _entry(
        "succeeds",
        "To change the options or the days of a running experiment: the digest of its terms.\n"
        "The answer stays as it is, and no participant may be promised less.",
        b"",
    )
    context_fields: Annotated[readers.Options, AfterValidator(contexts.context)] = _entry(
        "contextual.fields",
        "With algorithm private-contextual: what devices know about their participant and choose\n"
        'by, each field as "name: value, value", or "name: 18 to 90" for a number.',
        (),
    )
    interactions: Annotated[readers.Options, AfterValidator(contexts.interacting)] = _entry(
        "contextual.interactions",
        'With moments: for which options a field matters, each as "age: new, other". Default:\n'
        "every field for every option.",
        (),
    )
    statistic: Annotated[str, words(optional=True), AfterValidator(contexts.statistic)] = _entry(
        "contextual.statistic",
        '"table": one cell for every context and option; at most 80. "moments": features and\n'
        "their products, with numbers or many cells. Default: a table where it is small enough.",
        default_factory=contexts.usual_statistic,
    )
    evaluation: Annotated[readers.Part, AfterValidator(contexts.with_context)] = _entry(
        "contextual.evaluation",
        "The share of participants who get an option at random, to measure what choosing by\n"
        "context gains. Default: 10% with contexts.",
        default_factory=defaults.evaluation,
    )
    exploration: Annotated[readers.Part, AfterValidator(contexts.with_table)] = _entry(
        "contextual.exploration",
        "The share of every segment that gets an option at random until one is shown to be the\n"
        "best there. 0: whichever leads, so a decision may take long. Default: 20% with tables.",
        default_factory=defaults.exploration,
    )
    meaning: Annotated[str, words(2000)] = _entry(
        "answer.meaning", "What a device reports, in the words that participants read."
    )
    metric: Annotated[str, words()] = _entry("answer.metric", "A short name for it.", "answer")
    low: readers.Number = _entry("answer.low", "The minimum; less counts as this.", Fraction(0))
    high: Annotated[readers.Number, AfterValidator(rules.above_low)] = _entry(
        "answer.high", "The maximum; more counts as this.", Fraction(1)
    )
    levels: Annotated[readers.Count, AfterValidator(contexts.bit_with_table)] = _entry(
        "answer.levels",
        "Steps between the two: 1 for yes or no, 4 for one to five stars. Values in between are\n"
        "rounded at random, without bias.",
        default_factory=defaults.levels,
    )
    labels: Annotated[readers.Options, AfterValidator(rules.one_for_each_value)] = _entry(
        "answer.labels",
        "The words that participants choose from, one for each value, the lowest first. Without\n"
        'them participants type a number. Default: "No" and "Yes" from 0 to 1 in one step.',
        default_factory=defaults.labels,
    )
    window: Annotated[readers.Duration, lasting()] = _entry(
        "answer.window", "How long a device watches before it reports. It reports in any case."
    )
    participants: readers.Count | None = _entry(
        "people.participants",
        "Number of participants whose reports are released, in all. Default: no limit until the\n"
        "last day.",
        None,
    )
    participations: Annotated[readers.Count, AfterValidator(contexts.once_with_context)] = _entry(
        "people.participations",
        "How often one person may take part; the promise covers all of it together.",
        1,
    )
    admission: Literal["open", "invitation"] = _entry(
        "people.admission", '"open": anyone may take part. "invitation": those you invited.', "open"
    )
    issuer: Annotated[readers.OptionalKey, AfterValidator(rules.invites)] = _entry(
        "people.issuer",
        "Who signs invitations, as a public key. Default: you. Where devices share the noise it\n"
        "must be somebody else, who could otherwise invent participants.",
        b"",
    )
    missing: Annotated[readers.Part, AfterValidator(rules.where_shared)] = _entry(
        "people.missing",
        "Where devices share the noise: the share of a round that may not report. A round with\n"
        "fewer reports is not released. Default: 20% there, 0 elsewhere.",
        default_factory=defaults.missing,
    )
    dishonest: Annotated[readers.Part, AfterValidator(rules.some_left)] = _entry(
        "people.dishonest",
        "Where devices share the noise: the share of a round that may be invented or may leave\n"
        "the noise out. Default: 10% there, 0 elsewhere.",
        default_factory=defaults.dishonest,
    )
    first_day: readers.Day = _entry("people.first_day", "The first day, in UTC.")
    last_day: Annotated[readers.Day, AfterValidator(rules.after_first)] = _entry(
        "people.last_day", "The last day; every round closes before it ends."
    )
    dropout: readers.Part = _entry(
        "people.dropout",
        "The share of participants who may drop out before they report.",
        Fraction(1, 10),
    )
    no_show: Annotated[
        readers.Part, Field(le=MOST_NO_SHOW), AfterValidator(contexts.without_context)
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
    delta: Annotated[readers.Part, AfterValidator(rules.where_needed)] = _entry(
        "promise.delta",
        "The probability of exceptions to the promise. Default: 0, or 0.000001 where devices\n"
        "share the noise, and with moments.",
        default_factory=lambda found: rules.usual_delta(found["trust"], found["statistic"]),
    )
    min_batch_size: Annotated[
        readers.Count, Field(ge=2), AfterValidator(rules.enough_participants)
    ] = _entry("promise.min_batch_size", "No sum of fewer reports than this is released.", 20)
    post_quantum: Annotated[bool, AfterValidator(rules.encrypted)] = _entry(
        "promise.post_quantum",
        "true: reports that somebody records stay secret from later quantum computers (ML-KEM-768\n"
        "beside X25519). Browsers cannot take part then. Default: false.",
        False,
    )
    joining: Annotated[readers.Duration, lasting(1)] = _entry(
        "rounds.joining", "How long participants can join a round.", 6 * 3600
    )
    margin: Annotated[readers.Duration, lasting(2), AfterValidator(rules.one_round_fits)] = _entry(
        "rounds.margin",
        "Time after the window in which reports arrive, each at a random moment.",
        3600,
    )
    grace: Annotated[readers.Duration, lasting(1, LONGEST_GRACE)] = _entry(
        "rounds.grace",
        "How long round keys live after a round closes, so that it may still be released if a\n"
        "server was down: at most 7 days. It is part of the terms.",
        DAY,
    )
    most: Annotated[readers.Count | None, AfterValidator(rules.of_participants)] = _entry(
        "rounds.most",
        "Maximum number of rounds, one after another.",
        default_factory=defaults.rounds,
    )
    guardrail: Annotated[str, words(optional=True), AfterValidator(rules.second_number)] = _entry(
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
    guardrail_margin: Annotated[readers.Number, AfterValidator(rules.within_range)] = _entry(
        "guardrail.margin",
        "How much worse than the control is tolerated, in units of the answer.",
        Fraction(0),
    )
    helper_address: Annotated[
        readers.Address | None, AfterValidator(rules.with_helper("address"))
    ] = _entry(
        "helper.address",
        "The second server, which another organisation runs; none with trust local or\n"
        "secure-aggregation.",
        None,
    )
    helper_key: Annotated[readers.PublicKey | None, AfterValidator(rules.with_helper("key"))] = (
        _entry("helper.key", "Its key, as its operator told you over another channel.", None)
    )
    baseline: readers.Number | None = _entry(
        "expected.baseline", "For the forecast only. The mean answer that you expect today,", None
    )
    lift: Annotated[readers.Positive | None, AfterValidator(rules.possible)] = _entry(
        "expected.lift", "how much better the best option may be,", None
    )
    per_day: readers.Count | None = _entry(
        "expected.per_day", "and how many people come in a day.", None
    )

    @classmethod
    def of(cls, **values: Any) -> Definition:
        """A definition with these fields; raises `DefinitionError` with all errors."""
        return validated(values, by_name=True)

    @property
    def answer(self) -> Answer:
        """The content of one report."""
        names = (self.metric, self.guardrail) if self.guardrail else (self.metric,)
        numbers = (self.levels, self.window, self.low, self.high)
        return Answer(self.meaning, names, *numbers, self.labels)

    @property
    def scale(self) -> Fraction:
        """Scale of each server's discrete Laplace noise: levels · participations · metrics / ε.

        In a table a participant is in one cell, and replacing it moves two: 2 / ε.
        """
        if self.context is not None:
            return TABLE_SENSITIVITY / self.epsilon
        return self.levels * self.participations * len(self.answer.metrics) / self.epsilon

    @property
    def table(self) -> option_tables.OptionTable | None:
        """The options with their features, if they have any."""
        return option_tables.read(self.options_table) if self.options_table else None

    @property
    def context(self) -> ContextTerms | None:
        """The contexts by which devices choose; None without any."""
        return contexts.context_terms(vars(self))

    @property
    def trust_model(self) -> TrustModel:
        """The trust model."""
        return TrustModel(self.trust)

    @property
    def approximate(self) -> bool:
        """Whether the noise of the algorithm needs a δ under the trust model."""
        return rules.approximate(self.trust, self.algorithm)

    @property
    def smallest(self) -> int:
        """Participants of the smallest round: the minimum batch size plus an allowance for
        dropouts.
        """
        lost = self.missing if self.trust_model.shares_noise else self.dropout
        return rules.smallest(self.min_batch_size, lost)

    @property
    def timing(self) -> Timing:
        """The durations of a round's phases."""
        return Timing(self.joining, self.margin, self.grace)

    @property
    def round_length(self) -> int:
        """Maximum seconds from the beginning of a round until its close."""
        return self.joining + self.window + self.margin

    def terms(self, coordinator_address: str, coordinator_key: bytes) -> Terms:
        """The terms for participants, if this coordinator runs the experiment."""
        return Terms(
            question=self.question,
            options=self.options,
            answer=self.answer,
            promise=Promise(self.epsilon, self.delta, self.participations),
            noise=self._noise(),
            parties=self._parties(coordinator_address, coordinator_key),
            first_day=self.first_day,
            last_day=self.last_day,
            trust=self.trust_model,
            proofs=int(self.proofs),
            aggregation=Aggregation(
                self.min_batch_size,
                self.missing,
                int(self.trust_model.shares_noise),
                self.dishonest,
            ),
            admission=self.admission,
            issuer=(self.issuer or coordinator_key) if self.admission == "invitation" else b"",
            suite=POST_QUANTUM_SUITE if self.post_quantum else "",
            grace=self.grace,
            no_show=self.no_show,
            organisation=self.organisation,
            purpose=self.purpose,
            contact=self.contact,
            predecessor=self.succeeds,
            context=self.context,
        )

    def _parties(self, address: str, key: bytes) -> tuple[Party, ...]:
        """The operators of the servers, in the order of the terms."""
        helper = (self.helper_address or "", self.helper_key or b"")
        return tuple(
            Party(role, *((address, key) if role in LEADING else helper))
            for role in ROLES[self.trust_model]
        )

    def _noise(self) -> Noise:
        """The noise of the smallest round, which that of no round is below."""
        exact = self.context is None or self.context.exact
        if self.trust_model is TrustModel.TWO_SERVERS and exact:
            return Noise(self.scale)
        from tacit.rounds.stated_noise import minimum_noise

        example = self.experiment().mechanism.example()
        if example is None:
            raise TacitError(
                f"algorithm is {self.algorithm}, whose rounds have no known noise: choose another"
            )
        return minimum_noise(example)

    def experiment(self) -> Experiment:
        """The experiment (learner and mechanism) before its first round."""
        from tacit.algorithms.registry import begin, lookup

        if self.context is not None:
            exact = self.context.exact
            chosen = begin(
                self.algorithm,
                self.options,
                horizon=self.participants or ANYBODY,
                epsilon=self.epsilon if exact else float(self.epsilon),
                delta=None if exact else float(self.delta - self._masking_delta),
                trust=self.trust,
                statistic="tables" if exact else "moments",
                evaluation=float(self.evaluation),
                exploration=float(self.exploration),
                features=self.context.features(self.options),
                binary=self.levels == 1,
                levels=self.levels,
                metrics=len(self.answer.metrics),
                missing=float(self.missing),
                dishonest=float(self.dishonest),
                scaled=True,
                smallest=self.smallest,
            )
            chosen.keep_control(self.control, 0.0)
            if self.guardrail:
                margin = float(self.guardrail_margin / (self.high - self.low))
                chosen.guard(self.guardrail, self.guardrail_better, margin)
            return chosen
        ends, options = self.participants is not None, lookup(self.algorithm).options
        given: dict[str, Any] = {
            "horizon": self.participants if ends else ANYBODY,
            "anytime": not ends,
            "rounds": self.most,
            "epsilon": float(self.epsilon) if self.approximate else self.epsilon,
            "participations": self.participations,
            "trust": self.trust,
            "control_share": float(self.control_share),
            **self._guarded(),
        }
        if self.proofs:
            given["through"] = "verified"
        if self.trust_model.shares_noise:
            given |= {
                "delta": float(self._noise_delta) or None,
                "dropout": self.missing,  # exactly, as the terms count participants
                "corrupt": self.dishonest,
                "min_batch_size": self.smallest,
            }
        fixed = {"added": True} if self.approximate else {}
        built = begin(
            self.algorithm,
            self.options,
            **fixed,
            **{name: value for name, value in given.items() if name in options},
            binary=self.levels == 1,
            levels=self.levels,
            smallest=self.smallest,
            control=self.options.index(self.control),
            table=None if self.table is None else self.table.rows,
        )
        if not self.control_share:
            built.keep_control(self.control, 0.0)
        return built

    @property
    def _noise_delta(self) -> Fraction:
        """The part of δ that the aggregation leaves to the noise."""
        return self.delta - (self._masking_delta if self.approximate else 0)

    @property
    def _masking_delta(self) -> Fraction:
        """The part of δ that secure aggregation needs by itself."""
        return rules.masking_delta(self.trust, self.participations)

    def _guarded(self) -> dict[str, Any]:
        """The guardrail as algorithms expect it, with the margin relative to the range."""
        if not self.guardrail:
            return {}
        return {
            "guardrail": self.guardrail,
            "guardrail_better": self.guardrail_better,
            "guardrail_margin": float(self.guardrail_margin / (self.high - self.low)),
        }


ENTRIES = {str(field.validation_alias): name for name, field in Definition.model_fields.items()}
"""The fields of a definition by their place in the file."""


def validated(values: Mapping[str, Any], by_name: bool) -> Definition:
    """The definition with these fields, or `DefinitionError` with all errors."""
    try:
        return Definition.model_validate(_listed(values), by_name=by_name, by_alias=not by_name)
    except ValidationError as error:
        known = {name: name for name in ENTRIES.values()} if by_name else ENTRIES
        raise DefinitionError(list(readers.problems(error, Definition, known))) from None


def _listed(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entries with the options of a table, where they are not listed."""
    if values.get("options") or not values.get("options_table"):
        return values
    try:
        table = option_tables.read(str(values["options_table"]))
    except readers.InvalidValue:  # reported with the entry itself
        return values
    return {**values, "options": table.options}
