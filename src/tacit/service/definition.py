"""Experiment definitions: terms, experiment and timing derived from the entries of one file.

A definition determines the terms (the guarantee for participants), the experiment (the learner)
and the timing of its rounds. All three use the same exact fraction as the noise scale.
`definition_entries` lists the entries, `definition_files` reads and writes the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tacit import readers
from tacit.errors import TacitError
from tacit.service import context_entries as contexts
from tacit.service import definition_rules as rules
from tacit.service import option_tables
from tacit.service.definition_entries import DefinitionEntries
from tacit.service.definition_text import DefinitionError
from tacit.service.timing import Timing
from tacit.terms import (
    LEADING,
    POST_QUANTUM_SUITE,
    ROLES,
    Aggregation,
    Answer,
    ContextTerms,
    Noise,
    Party,
    StatedGuarantee,
    Terms,
)
from tacit.terms.context import MOMENTS, TABLE, TABLE_SENSITIVITY
from tacit.trust import TrustModel

if TYPE_CHECKING:
    from tacit.experiment import Experiment

ANYBODY = 10**15  # horizon of an experiment that ends only by its last day


class Definition(DefinitionEntries):
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
        """Context terms: the devices' features, or their fitted parameters; None without either."""
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
            guarantee=StatedGuarantee(self.epsilon, self.delta, self.participations),
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

        if self.context_fields:
            assert self.context is not None
            chosen = begin(
                self.algorithm,
                self.options,
                horizon=self.participants or ANYBODY,
                epsilon=self.epsilon,
                delta=float(self._noise_delta) if self._with_delta else None,
                trust=self.trust,
                statistic="tables" if self.statistic == TABLE else self.statistic,
                evaluation=float(self.evaluation),
                exploration=float(self.exploration),
                features=self.context.features(self.options),
                binary=self.levels == 1,
                levels=self.levels,
                metrics=len(self.answer.metrics),
                missing=self.missing,  # exactly, as the terms count participants
                dishonest=self.dishonest,
                scaled=True,
                smallest=self.smallest,
            )
            chosen.keep_control(self.control, 0.0)
            if self.guardrail:
                chosen.guard(*self._guarded().values())
            return chosen
        ends, options = self.participants is not None, lookup(self.algorithm).options
        given: dict[str, Any] = {
            "horizon": self.participants if ends else ANYBODY,
            "anytime": not ends,
            "rounds": self.most,
            "epsilon": float(self.epsilon) if self._with_delta else self.epsilon,
            "plays": self.plays,
            "participations": self.participations,
            "trust": self.trust,
            "control_share": float(self.control_share),
            **self._guarded(),
        }
        if self.proofs:
            given["through"] = "verified"
        if self.plays is not None or self.trust_model.shares_noise:
            given["delta"] = float(self._noise_delta) or None
        if self.trust_model.shares_noise:
            given |= {
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
        return self.delta - (self._masking_delta if self._with_delta else 0)

    @property
    def _with_delta(self) -> bool:
        """Whether the noise has a δ of its own: noise bits, Gaussian and Skellam noise."""
        return self.approximate or self.plays is not None or self.statistic == MOMENTS

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
        return Definition.model_validate(
            _with_listed_options(values), by_name=by_name, by_alias=not by_name
        )
    except ValidationError as error:
        known = {name: name for name in ENTRIES.values()} if by_name else ENTRIES
        raise DefinitionError(list(readers.problems(error, Definition, known))) from None


def _with_listed_options(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entries with the options of a table, where they are not listed."""
    if values.get("options") or not values.get("options_table"):
        return values
    try:
        table = option_tables.read(str(values["options_table"]))
    except readers.InvalidValue:  # reported with the entry itself
        return values
    return {**values, "options": table.options}
