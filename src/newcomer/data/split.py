"""The splitting rule: cut "new entities arrive" out of a graph.

Sample R % (or N) of the test triples; C = their heads (subject), tails (object) or both. Train = training triples that
touch no C; seen = entities of that train. Aux = training triples with one end in C and the other seen. Valid = valid
triples with both ends seen. Test = sampled triples whose C end occurs in aux and whose other end is seen; where both
ends are C (both), each must occur in aux.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from newcomer.data.tables import assemble
from newcomer.errors import DatasetError, InputError, OptionError, check_name, shown
from newcomer.files import read_lines
from newcomer.graph import UNKNOWN, Graph, Ids, InductiveDataset, Mask, TripleArray, Vocabulary, concatenate

SIDES = ("subject", "object", "both")
HOLDOUT_TEST, HOLDOUT_VALID = 0.10, 0.05


@dataclass(frozen=True)
class SplitRule:
    """Which ends become newcomers, and how many test triples are drawn: ``rate`` in percent or ``triples``.

    With ``keep_test`` test triples that are not drawn count as training triples: nothing that is known of the graph is
    lost. The published sets lose them.
    """

    unseen: str = "subject"
    rate: float | None = None
    triples: int | None = None
    seed: int = 0
    keep_test: bool = False

    def __post_init__(self) -> None:
        check_name("side", self.unseen, SIDES)
        if self.rate is not None and self.triples is not None:
            raise OptionError("give either a rate or a number of triples, not both")
        if self.rate is not None and not 0 < self.rate <= 100:
            raise OptionError(f"rate {self.rate:g} is not a percentage above 0 and up to 100")
        if self.triples is not None and self.triples < 1:
            raise OptionError(f"triples {self.triples} is not a number of at least 1")
        if self.seed < 0:
            raise OptionError(f"seed {self.seed} is not a number of at least 0")


def split_graph(dataset: InductiveDataset, rule: SplitRule, newcomers: Ids | None = None) -> InductiveDataset:
    """Split a graph by the rule, or around a given set of ``newcomers`` (then all their test triples are asked).

    >>> from newcomer.data import SplitRule
    >>> data = newcomer.split_graph(newcomer.load_dataset("sample"), SplitRule(unseen="subject", rate=20, seed=0))
    >>> len(data.newcomers), len(data.test)
    (52, 54)
    """
    whole = dataset.reunited() if len(dataset.auxiliary) else dataset  # before it is cut anew
    source = whole if len(whole.test.positives) else hold_out(whole, rule.seed)
    test = source.test.positives
    chosen = np.arange(len(test)) if newcomers is not None else _draw(len(test), rule)
    drawn = test.take(chosen)
    ends = newcomers if newcomers is not None else ends_on(rule.unseen, drawn)
    is_candidate = np.zeros(len(source.entities), dtype=bool)
    is_candidate[ends] = True
    if rule.keep_test:
        is_kept = np.ones(len(test), dtype=bool)
        is_kept[chosen] = ~is_candidate[drawn.heads] & ~is_candidate[drawn.tails]
        known = concatenate([source.observed.triples, test.take(is_kept)])
        source = replace(source, observed=Graph.build(source.entities, source.relations, known))
    return _cut(source, drawn, is_candidate, both=rule.unseen == "both" and newcomers is None)


def _draw(available: int, rule: SplitRule) -> Ids:
    wanted = rule.triples if rule.triples is not None else round(available * (rule.rate or 10) / 100)
    if wanted > available:
        raise OptionError(f"{wanted:,} triples cannot be drawn from the {available:,} of test; ask for fewer")
    rng = np.random.default_rng(rule.seed)
    return np.sort(rng.choice(available, size=max(wanted, 1), replace=False)).astype(np.int32)


def ends_on(unseen: str, drawn: TripleArray) -> Ids:
    """The entities that a side of triples names: subject, object or both."""
    columns = {"subject": [drawn.heads], "object": [drawn.tails], "both": [drawn.heads, drawn.tails]}[unseen]
    return np.concatenate(columns)


def _cut(source: InductiveDataset, drawn: TripleArray, is_candidate: Mask, both: bool) -> InductiveDataset:
    train, valid = source.observed.triples, source.valid.positives
    head_new, tail_new = is_candidate[train.heads], is_candidate[train.tails]
    observed = train.take(~(head_new | tail_new))
    seen = entities_of(observed, len(is_candidate))
    auxiliary = train.take((head_new & seen[train.tails]) | (tail_new & seen[train.heads]))
    arrived = is_candidate & entities_of(auxiliary, len(is_candidate))
    if len(observed) == 0:
        raise DatasetError("every training triple touches a newcomer; draw fewer, or give another set of newcomers")
    asked = (
        arrived[drawn.heads] & arrived[drawn.tails]
        if both
        else (arrived[drawn.heads] & seen[drawn.tails]) | (arrived[drawn.tails] & seen[drawn.heads])
    )
    parts = {
        "train": observed,
        "aux": auxiliary,
        "valid": valid.take(seen[valid.heads] & seen[valid.tails]),
        "test": drawn.take(asked),
    }
    return assemble(source.name, source.entities.names, source.relations.names, parts)


def entities_of(triples: TripleArray, num_entities: int) -> Mask:
    """Which entities stand at either end of these triples."""
    used = np.zeros(num_entities, dtype=bool)
    used[triples.heads] = used[triples.tails] = True
    return used


def hold_out(dataset: InductiveDataset, seed: int) -> InductiveDataset:
    """A graph without a test file: 10 % of its triples (at least one) become test and 5 % valid, by seed."""
    triples = dataset.observed.triples
    tests, valids = max(1, round(HOLDOUT_TEST * len(triples))), round(HOLDOUT_VALID * len(triples))
    if tests + valids >= len(triples):
        raise DatasetError(f"{dataset.name} has no test triples and only {len(triples):,} to draw them from; add some")
    order = np.random.default_rng([seed, 1]).permutation(len(triples))
    test, held, rest = (triples.take(np.sort(part)) for part in np.split(order, [tests, tests + valids]))
    valid = concatenate([held, dataset.valid.positives])
    observed = Graph.build(dataset.entities, dataset.relations, rest)
    return InductiveDataset(dataset.name, observed, dataset.auxiliary, valid, test)


def read_names(path: Path, entities: Vocabulary) -> Ids:
    """The ids of the entities a file names; blank lines are passed over, an unknown name is an error."""
    lines = read_lines(path)
    # A name may begin or end with blanks; where none such is known, blanks around it do not count.
    named = [(n, line if line in entities else line.strip()) for n, line in enumerate(lines, start=1) if line.strip()]
    ids = entities.ids([name for _, name in named])
    for (number, name), identifier in zip(named, ids, strict=True):
        if identifier == UNKNOWN:
            raise InputError(path, f"{shown(name)} is no entity of the graph", number, "check its spelling")
    if not named:
        raise InputError(path, "names nobody", hint="give one name a line")
    return ids
