"""Suggestions measured: how many are right, how many of the missing facts they are, and how far they can be believed.

Whole relations of test's newcomers are masked (`newcomer.evaluation.suggestions`), and what a user would be shown is
compared with what is true and not known then. Beside the model stand two that need no training of vectors:

    rules      the smoothed confidence of the best rule that infers the fact
    frequency  the share of the seen entities that have the very same answer

A relation counts as functional where at most one in twenty of the entities that have an answer has another one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from newcomer.data.cut import WithheldDataset
from newcomer.errors import DatasetError
from newcomer.evaluation.alignment import AlignedModel, scorer_for
from newcomer.evaluation.applicability import RelationProfiles, likely_relations
from newcomer.evaluation.breakdown import facts_groups
from newcomer.evaluation.calibration import Probabilities, believed, best, calibration_error, reliability
from newcomer.evaluation.measure import Evaluation
from newcomer.evaluation.metrics import mean
from newcomer.evaluation.questions import Likely, Prober, Questions
from newcomer.evaluation.ranking import FILTERS, Progress, align
from newcomer.evaluation.stored import calibration_of
from newcomer.evaluation.suggestions import RELATIONS, asked_newcomers, mask_facts
from newcomer.evaluation.verbs import Missing, VerbRecorder, VerbTest, verb_figures
from newcomer.graph import Graph, Ids, InductiveDataset, Mask, Offsets
from newcomer.models.device import limited_threads
from newcomer.rules.statistics import GraphSignals, graph_signals

SHOWN, FIRST = 20, 10  # suggestions about a newcomer, and those that are measured apart
FEW = (1, 3, FIRST)  # likeliest of each newcomer, by themselves
NEWCOMERS = 300  # asked about, unless stated otherwise
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # of probability
FUNCTIONAL = 0.05  # of those who have an answer, who have another one
MODEL, RULES, FREQUENCY = WHO = ("model", "rules", "frequency")


@dataclass(frozen=True, eq=False)
class Suggested:
    """Facts suggested about newcomers, a row a fact: those about one newcomer together, likeliest first."""

    newcomer: Ids
    relation: Ids  # oriented
    answer: Ids
    place: Offsets  # among the facts suggested about the newcomer, from 0
    probability: Probabilities
    right: Mask
    second: Mask  # whether the relation is functional, and filled already

    def where(self, mask: Mask) -> "Suggested":
        """Some of them."""
        return Suggested(*(column[mask] for column in vars(self).values()))


@dataclass(frozen=True, eq=False)
class SuggestionTest:
    """What was suggested by the model and by others, and what there was to find."""

    dataset: WithheldDataset  # without what was masked
    filter: str  # what is right: as the filter of a ranking
    newcomers: Ids  # with the ids of the snapshot, as all that is suggested
    known_facts: Ids  # of each newcomer
    missing: Ids  # facts of each that are true and not known
    relations: list[str]
    suggested: dict[str, Suggested]
    calibrated: bool
    verbs: VerbTest  # what the model's other commands say about the same newcomers


def suggestion_test(
    evaluation: Evaluation, filter_name: str, full: Graph | None, most: int, progress: Progress | None = None
) -> SuggestionTest:
    """Ask what a user would be shown about newcomers of test, so many at most."""
    dataset, seed = evaluation.visible, evaluation.seed
    among = dataset.test_newcomers if len(dataset.test_newcomers) else dataset.newcomers
    asked = asked_newcomers(dataset, among, most, seed)
    if len(asked) == 0:
        problem = f"{dataset.name} has no newcomer with facts along two relations, of which one could be masked"
        raise DatasetError(f"{problem}; cut a data set with newcomers out of the graph: newcomer split")
    masked = mask_facts(dataset, asked, [seed])
    with limited_threads(evaluation.threads):
        scorer = scorer_for(evaluation.bundle, masked, evaluation.device, evaluation.threads)
        true = align(FILTERS[filter_name](masked, full), scorer.alignment.observed)
        newcomers = np.sort(scorer.alignment.entities[asked])
        prober = Prober(_questions(scorer), calibration_of(evaluation.bundle))
        recorder = VerbRecorder(prober, align(_masked_facts(dataset, masked), scorer.alignment.observed))
        found = _asked(scorer, recorder, newcomers, true, progress)
    overlay = scorer.inner.snapshot.overlay
    known = [len(overlay.all_facts_of(one)[0]) for one in newcomers.tolist()]
    missing = [len(_missing(scorer, true, one)) for one in newcomers.tolist()]
    names = list(scorer.alignment.observed.relations)
    calibrated = calibration_of(evaluation.bundle) is not None
    counts = np.array(known, dtype=np.int32), np.array(missing, dtype=np.int32)
    return SuggestionTest(masked, filter_name, newcomers, *counts, names, found, calibrated, recorder.found())


def _questions(scorer: AlignedModel) -> Questions:
    engine, snapshot = scorer.inner.engine, scorer.inner.snapshot
    return Questions(engine, snapshot, RelationProfiles(engine.model.observed, snapshot.num_seen))


def _masked_facts(dataset: InductiveDataset, masked: WithheldDataset) -> Graph:
    """What was masked of a data set, which may have been cut before."""
    count = len(dataset.auxiliary) - len(masked.auxiliary)
    facts = masked.withheld.take(np.arange(len(masked.withheld) - count, len(masked.withheld)))
    return Graph.build(masked.entities, masked.relations, facts)


def _missing(scorer: AlignedModel, true: Graph, newcomer: int) -> Missing:
    """The oriented relations and answers that are true of a newcomer and not known."""
    stated = scorer.inner.snapshot.overlay.all_facts_of(newcomer)
    known, facts = (
        set(zip(*map(np.ndarray.tolist, pair), strict=True)) for pair in (stated, true.adjacency.of(newcomer))
    )
    return facts - known


def _asked(
    scorer: AlignedModel, recorder: VerbRecorder, newcomers: Ids, true: Graph, progress: Progress | None
) -> dict[str, Suggested]:
    """What each suggests."""
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in WHO}
    questions = recorder.prober.questions
    profiles = questions.profiles
    functional: dict[int, bool] = {}
    for number, newcomer in enumerate(newcomers.tolist(), 1):
        relations = likely_relations(questions.applies(newcomer), RELATIONS)
        missing = _missing(scorer, true, newcomer)
        likeliest = recorder.ask(newcomer, relations.tolist(), missing, SHOWN)
        for name, listed in [(MODEL, likeliest), *_others(questions, newcomer, relations)]:
            for place, one in enumerate(listed):
                relation = one.relation
                if relation not in functional:
                    functional[relation] = profiles.share_with_more(relation, 1) <= FUNCTIONAL
                second = functional[relation] and len(questions.overlay.all_answers(newcomer, relation)) > 0
                right = (relation, one.place) in missing
                rows[name].append((newcomer, relation, one.place, place, one.probability, right, second))
        if progress is not None:
            progress(number, len(newcomers))
    types = (np.int32, np.int32, np.int32, np.int64, np.float64, bool, bool)
    columns = {name: zip(*found, strict=True) if found else [()] * len(types) for name, found in rows.items()}
    return {
        name: Suggested(*(np.array(column, dtype=kind) for column, kind in zip(found, types, strict=True)))
        for name, found in columns.items()
    }


def _others(questions: Questions, newcomer: int, relations: Ids) -> Iterator[tuple[str, list[Likely]]]:
    """What is suggested about a newcomer by rules and by frequency."""
    engine, overlay = questions.engine, questions.overlay
    if engine.rules.ranker is None:
        return
    statistics = engine.statistics(questions.snapshot)
    signals = partial(graph_signals, engine.rules.ranker, overlay, statistics, newcomer)
    by_relation = [(relation, signals(relation)) for relation in relations.tolist()]
    yield RULES, _by(questions, newcomer, by_relation, lambda one: one.rules.confidence)
    yield FREQUENCY, _by(questions, newcomer, by_relation, lambda one: one.frequency / (overlay.num_seen + 1))


def _by(
    questions: Questions,
    newcomer: int,
    signals: list[tuple[int, GraphSignals]],
    probability: Callable[[GraphSignals], Probabilities],
) -> list[Likely]:
    """The likeliest facts by another probability."""
    found = []
    for relation, one in signals:
        likely = probability(one)
        places = best(likely, questions.left_out(newcomer, relation), SHOWN).tolist()
        for place in places:
            value = float(likely[place])
            found.append(Likely(relation, place, value, value, value, from_answer=False))
    return sorted(found, key=lambda one: (-one.probability, one.relation, one.place))[:SHOWN]


def suggestion_figures(test: SuggestionTest, suggested: Suggested) -> dict[str, Any]:
    """Figures of what one of them suggests: overall, of the first ten, and from each probability on."""
    first = suggested.where(suggested.place < FIRST)
    above = {level: suggested.where(suggested.probability >= level) for level in LEVELS}
    total = int(test.missing.sum())
    return {
        "metrics": {
            "precision@0.5": float(mean(above[0.5].right)),
            "recall@0.5": int(above[0.5].right.sum()) / max(total, 1),
            "precision@0.9": float(mean(above[0.9].right)),
            "ece": calibration_error(first.probability, first.right),
            "right": float(mean(first.right)),
            "probability": float(mean(first.probability)),
            "second_values": float(mean(first.second)),
        },
        "by_k": [{"k": k, **_believed(suggested.where(suggested.place < k))} for k in FEW],
        "thresholds": [{"from": level, **_counts(part, total)} for level, part in above.items()],
        "bins": reliability(suggested.probability, suggested.right),
        "bins_first": reliability(first.probability, first.right),
    }


def _counts(part: Suggested, total: int) -> dict[str, Any]:
    right = int(part.right.sum())
    return {
        "suggestions": len(part.right),
        "right": float(mean(part.right)),
        "probability": float(mean(part.probability)),
        "recall": right / max(total, 1),
        "second_values": float(mean(part.second)),
        "ece": _error(part),
        "bins": reliability(part.probability, part.right),
    }


def _believed(part: Suggested) -> dict[str, Any]:
    return believed(part.probability, part.right)


def by_verb(test: SuggestionTest) -> dict[str, Any]:
    """How far the model's other commands can be believed about the same newcomers."""
    mine = test.suggested[MODEL]
    first = mine.where(mine.place < FIRST)
    return verb_figures(test.verbs, first.newcomer, first.probability, first.right)


def recall_at(test: SuggestionTest, suggested: Suggested, precision: float) -> float:
    """The highest recall of the likeliest suggestions of which so many are right, whatever their probability."""
    order = np.argsort(-suggested.probability, kind="stable")
    right = np.cumsum(suggested.right[order])
    enough = np.flatnonzero(right >= precision * np.arange(1, len(right) + 1))
    return float(right[enough[-1]] / max(int(test.missing.sum()), 1)) if len(enough) else 0.0


def by_known_facts(test: SuggestionTest, suggested: Suggested) -> list[dict[str, Any]]:
    """A row for each number of known facts."""
    codes, names = facts_groups(test.known_facts)
    group = codes[np.searchsorted(test.newcomers, suggested.newcomer)]
    return [
        {"by": "facts", "group": names[code], "newcomers": int((codes == code).sum())}
        | _row(suggested.where(group == code), int(test.missing[codes == code].sum()))
        for code in np.unique(codes).tolist()
    ]


def by_relation(test: SuggestionTest, suggested: Suggested) -> list[dict[str, Any]]:
    """A row for each oriented relation that something is suggested of with a probability of a half; most first."""
    size, likely = len(test.relations), suggested.where(suggested.probability >= LEVELS[0])
    rows = []
    for relation in np.unique(likely.relation).tolist():
        part, name = likely.where(likely.relation == relation), test.relations[relation % size]
        row = {"by": "relation", "group": name, "asked": "tail" if relation < size else "head"}
        rows.append(row | {"suggestions": len(part.right)} | _figures(part))
    return sorted(rows, key=lambda row: (-row["suggestions"], row["group"], row["asked"]))


def _row(part: Suggested, total: int) -> dict[str, Any]:
    first, likely = part.where(part.place < FIRST), part.where(part.probability >= LEVELS[0])
    recall = int(likely.right.sum()) / max(total, 1)
    return {"suggestions": len(likely.right), "recall": recall, **_figures(likely), "ece": _error(first)}


def _figures(part: Suggested) -> dict[str, float]:
    return {"right": float(mean(part.right)), "probability": float(mean(part.probability))}


def _error(part: Suggested) -> float:
    return calibration_error(part.probability, part.right)


BREAKDOWNS = {"facts": by_known_facts, "relation": by_relation}
