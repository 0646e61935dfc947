"""Registry of named algorithms.

Each name stands for a function that builds an `Experiment` for a problem; `@algorithm` registers
it. Other packages register theirs through the entry-point group `tacit.algorithms`; these are
simulated, compared, planned with and tested like our own. Listing names does not import NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from tacit.errors import TacitError, did_you_mean, one_of
from tacit.trust import DEPLOYABLE, DEPLOYABLE_WITH_CONTEXTS, TrustModel

if TYPE_CHECKING:
    from tacit.algorithms.problems import Problem
    from tacit.experiment import Experiment
    from tacit.privacy import Guarantee

GROUP = "tacit.algorithms"
OWN = (
    "nonprivate_baselines",
    "private_baselines",
    "cz23",
    "tkms21",
    "private_klucb",
    "private_med",
    "private_dpe",
    "private_pe",
    "private_contextual",
    "lzj22",
    "zc24",
)
HIDDEN = (
    "added",
    "binary",
    "control",
    "dishonest",
    "exploration",
    "features",
    "levels",
    "metrics",
    "missing",
    "scaled",
    "smallest",
    "table",
)  # fields that are no options
Build = TypeVar("Build", bound=Callable[[Any], Any])
Also = Callable[[Any], "Guarantee | None"]


@dataclass(frozen=True)
class SetByPilots:
    """The default of an option that pilot runs set.

    It is the largest value with which a run has no more of `total` than one of `reference`.
    """

    reference: str
    total: str


@dataclass(frozen=True)
class GuaranteeForm:
    """How an algorithm's guarantee is stated.

    Parameters
    ----------
    text : str
        The guarantee, in the field's notation.
    also : callable, optional
        Derives the guarantee of a problem in another form, such as Rényi divergences.
    """

    text: str
    also: Also | None = None


@dataclass(frozen=True)
class Algorithm:
    """One named algorithm: its source, trust models, guarantee, problem and options.

    Parameters
    ----------
    name : str
        The name in `simulate` and on the command line.
    paper : str
        The paper that it is from.
    trusts : tuple of TrustModel
        The trust models under which it runs.
    form : GuaranteeForm
        The form of its guarantee.
    problem : type of Problem
        The class of its problems.
    build : callable
        Builds the experiment of a problem.
    options : tuple of str
        The options that it has.
    defaults : mapping
        Default values that differ from the problem's.
    cautions : mapping
        Options, and the warning that each of them needs.
    """

    name: str
    paper: str
    trusts: tuple[TrustModel, ...]
    form: GuaranteeForm
    problem: type[Problem]
    build: Callable[[Any], Experiment]
    options: tuple[str, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    cautions: Mapping[str, str] = field(default_factory=dict)

    @property
    def guarantee(self) -> str:
        """The guarantee, in the field's notation."""
        return self.form.text

    @property
    def featured(self) -> bool:
        """Whether it uses features of the options (`table`)."""
        return self.problem.featured

    @property
    def trust(self) -> str:
        """The names of its trust models."""
        return ", ".join(self.trusts)

    @property
    def deployable(self) -> str:
        """The names of the trust models under which the live service runs it; empty for none."""
        served = {"arms": DEPLOYABLE, "contextual": DEPLOYABLE_WITH_CONTEXTS}
        return ", ".join(one for one in self.trusts if one in served.get(self.family, ()))

    @property
    def family(self) -> str:
        """Family of problems: arms, linear, federated or contextual."""
        return self.problem.family

    def make_problem(self, options: Mapping[str, Any], others: Iterable[str] = ()) -> Problem:
        """Return the problem with these options; options it does not support are rejected.

        `others` are options of the caller, which a misspelt option may mean.
        """
        strange = [name for name in options if name not in self.options]
        if strange:
            near = did_you_mean(strange[0], (*self.options, *others))
            has = f"; it has {', '.join(map(spelled, self.options))}"
            raise TacitError(
                f"{self.name} has no option {', '.join(map(spelled, strange))}{near or has}"
            )
        fixed = {k: v for k, v in self.defaults.items() if not isinstance(v, SetByPilots)}
        return self.problem.of(**{**fixed, **options})

    @property
    def pilot_option(self) -> tuple[str, SetByPilots] | None:
        """The option that pilot runs set, if there is one, and its rule."""
        rules = ((k, v) for k, v in self.defaults.items() if isinstance(v, SetByPilots))
        return next(rules, None)

    def describe(self, problem: Problem) -> dict[str, Any]:
        """The options in force."""
        values = problem.values()
        return {name: values[name] for name in self.options}


_KNOWN: dict[str, Algorithm] = {}


def _trust_model(algorithm: str, name: str) -> TrustModel:
    one_of(f"trust of {algorithm}", name, TrustModel)
    return TrustModel(name)


def algorithm(
    name: str,
    *,
    paper: str,
    trust: TrustModel | Iterable[TrustModel],
    guarantee: str | GuaranteeForm,
    problem: type[Problem],
    options: Iterable[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    cautions: Mapping[str, str] | None = None,
) -> Callable[[Build], Build]:
    """Register a function from problems to experiments under a name.

    Parameters
    ----------
    name : str
        Unique name.
    paper : str
        Short name of its source.
    trust : TrustModel or iterable of TrustModel
        The trust model, or all that `--trust` may name.
    guarantee : str or GuaranteeForm
        The guarantee, in the field's notation.
    problem : type
        The class of problems that it solves.
    options : iterable of str, optional
        Fields of the problem that it uses, all by default.
    defaults : mapping, optional
        Its own defaults, where they differ from the problem's; a `SetByPilots` one is set by pilot
        runs.
    cautions : mapping, optional
        Warnings for readers of a run, by value of an option.

    Returns
    -------
    callable
        A decorator that returns the function unchanged.

    Raises
    ------
    TacitError
        If the name is taken, or the problem lacks one of the options.

    Examples
    --------
    See `tacit.algorithms.nonprivate_baselines` for the shortest registrations.

    >>> lookup("klucb").trust
    'none'
    """

    def enter(build: Build) -> Build:
        if name in _KNOWN:
            raise TacitError(
                f"name is {name!r}, which {_KNOWN[name].build.__module__} has: choose another"
            )
        taken = tuple(options) if options is not None else tuple(problem.options())
        unknown = set(taken) - set(problem.options())
        if unknown:
            raise TacitError(
                f"{problem.__name__} has no {', '.join(sorted(unknown))}: remove it from options"
            )
        models = (trust,) if isinstance(trust, str) else tuple(trust)
        trusts = tuple(_trust_model(name, one) for one in models)
        form = GuaranteeForm(guarantee) if isinstance(guarantee, str) else guarantee
        about = (paper, trusts, form, problem, build, taken, dict(defaults or {}))
        _KNOWN[name] = Algorithm(name, *about, dict(cautions or {}))
        return build

    return enter


@cache
def _load() -> None:
    for module in OWN:
        import_module(f"tacit.algorithms.{module}")
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:
            raise TacitError(
                f"algorithm {point.name!r} cannot be loaded ({error}): repair or remove "
                f"{point.value}"
            ) from error


def algorithms() -> dict[str, Algorithm]:
    """Return all algorithms by name, tacit's own first.

    Returns
    -------
    dict of str to Algorithm

    Examples
    --------
    >>> "dist-dp-se" in algorithms()
    True
    """
    _load()
    return dict(_KNOWN)


def lookup(name: str) -> Algorithm:
    """Return the algorithm of a name, or raise an error that suggests a similar one."""
    known = algorithms()
    if name not in known:
        hint = did_you_mean(name, known) or f": must be one of {', '.join(sorted(known))}"
        raise TacitError(f"algorithm is {name!r}{hint} (see: tacit algorithms)")
    return known[name]


def begin(name: str, options: Iterable[str] = (), **settings: Any) -> Experiment:
    """Build an experiment by a named algorithm, for a service or a caller's own loop.

    Parameters
    ----------
    name : str
        Name of the algorithm.
    options : iterable of str
        Names of the experiment's options; replaces `arms`.
    **settings
        The algorithm's own options. Besides these: `binary=True` if answers are 0 or 1; `control`,
        the index of the control; `levels` and `smallest`, where terms fix an answer's levels and a
        minimum batch size; `added`, where they divide ε and δ equally among participations;
        `table`, where options are actions of a linear bandit.

    Returns
    -------
    Experiment

    Raises
    ------
    TacitError
        If the name is unknown, or the algorithm lacks one of the options.

    Examples
    --------
    >>> experiment = begin("dist-dp-se", ["Hello", "Hi"], horizon=10_000, epsilon=1.0)
    >>> experiment.options, experiment.guarantee.short
    (('Hello', 'Hi'), '(1, 0)-DP')
    """
    entry, names = lookup(name), tuple(options)
    hidden: dict[str, Any] = {key: settings.pop(key) for key in HIDDEN if key in settings}
    if names and "arms" not in entry.options:
        raise TacitError(f"{name} is {entry.family} and takes no named options: leave them out")
    if names:
        hidden |= {"labels": names, "arms": len(names)}
    return entry.build(entry.make_problem(settings).changed(**hidden))


def check_together(options: Mapping[str, Any]) -> None:
    """Reject options that contradict each other or would be ignored."""
    means, arms = options.get("means"), options.get("arms")
    if means is not None and arms is not None and len(means) != arms:
        raise TacitError(f"--arms is {arms}, but --means has {len(means)}: leave --arms out")
    if means is not None and "instance" in options:
        raise TacitError("--instance and --means both set the means: use one of them")
    if options.get("budgets") is not None and "epsilon" in options:
        raise TacitError("--budgets sets the epsilon of every silo: leave --epsilon out")
    if "data" in options:
        for name in ("actions", "dimension", "deviation"):
            if name in options:
                raise TacitError(f"--{name} is set by the file of --data: leave it out")
    elif "field" in options:
        raise TacitError("--field needs --data: give the file with it")


def spelled(name: str) -> str:
    """The command-line spelling of an option."""
    return f"--{name.replace('_', '-')}"
