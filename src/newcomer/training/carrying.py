"""Thresholds for the final model: they were found on that of the search, whose scores are on another scale.

The final model learned from more facts. How far its scores are from those of the search is seen by *doubles*: seen
entities that arrive once more, known by their facts and without a vector of their own. False triples about doubles,
drawn once, are scored by both models; neither learned that any of them is true. A relation's threshold moves as far as
the median of these scores does.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from newcomer.graph import Graph, Ids, InductiveDataset, TripleArray, Vocabulary, concatenate
from newcomer.tasks.link_prediction import align
from newcomer.tasks.triple_classification import TripleScorer
from newcomer.training.preparation import seen_count
from newcomer.training.validation import Exam

DRAWN = 2000  # facts that are made false
ENOUGH = 50  # of a relation, to have a median of its own
FOUND = "found"  # where thresholds keep what they were before they moved
FALSE = "false"  # and the medians of false triples by the model they were found on
ENDS = {"subject": (True, False), "object": (False, True), "both": (True, True)}


def false_facts(exam: Exam, seed: int) -> Graph:
    """Some of the facts that the search learned from, with any other seen entity as tail; none is an observed fact."""
    dataset, generator = exam.dataset, np.random.default_rng([seed, 7])
    facts = dataset.observed.triples
    drawn = facts.take(np.sort(generator.permutation(len(facts))[:DRAWN]))
    tails = generator.choice(np.flatnonzero(dataset.is_seen), size=len(drawn)).astype(np.int32)
    made = TripleArray(drawn.heads, drawn.relations, tails)
    known = dataset.observed.contains(made.heads, made.relations, made.tails)
    return Graph.build(dataset.entities, dataset.relations, made.take(~known))


def with_doubles(dataset: InductiveDataset, false: Graph, unseen: str) -> InductiveDataset:
    """The seen entities of a data set, doubles of those at the ends that are new, and false triples about these."""
    asked, facts = align(false, dataset).triples, dataset.observed.triples
    head, tail = ENDS[unseen]
    doubled = np.unique(np.concatenate([asked.heads[:0], *([asked.heads] * head), *([asked.tails] * tail)]))
    seen = seen_count(dataset.observed)
    double = np.arange(len(dataset.entities), dtype=np.int32)
    double[doubled] = np.arange(seen, seen + len(doubled), dtype=np.int32)
    entities = Vocabulary([*dataset.entities.names_of(range(seen)), *(f"\0{number}" for number in doubled)])
    facts = facts.take(facts.heads != facts.tails)
    of_heads, of_tails = (facts.take(double[ends] >= seen) for ends in (facts.heads, facts.tails))
    told = concatenate(
        [
            TripleArray(double[of_heads.heads], of_heads.relations, of_heads.tails),
            TripleArray(of_tails.heads, of_tails.relations, double[of_tails.tails]),
        ]
    )
    return InductiveDataset(
        dataset.name,
        Graph.build(entities, dataset.relations, dataset.observed.triples),
        Graph.build(entities, dataset.relations, told),
        TripleArray.empty(),
        TripleArray(_if(head, double, asked.heads), asked.relations, _if(tail, double, asked.tails)),
    )


def _if(new: bool, double: Ids, ends: Ids) -> Ids:
    return double[ends] if new else ends


def medians(scorer: TripleScorer, dataset: InductiveDataset) -> dict[str, Any]:
    """The median score of the triples asked about, and that of each relation with enough of them, by name."""
    asked = dataset.test
    scores = scorer.triple_scores(asked.heads, asked.relations, asked.tails)
    each = {number: scores[asked.relations == number] for number in np.unique(asked.relations).tolist()}
    return {
        "overall": float(np.median(scores)),
        "relations": {
            dataset.relations[number]: float(np.median(mine)) for number, mine in each.items() if len(mine) >= ENOUGH
        },
    }


def carried(thresholds: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Thresholds moved from the scale of the model they were found on to that of another, by its medians."""
    then = thresholds[FALSE]
    moves = {name: now["relations"][name] - then["relations"][name] for name in then["relations"]}
    overall = now["overall"] - then["overall"]
    found = {name: thresholds[name] for name in ("overall", "relations")}
    moved = {name: value + moves.get(name, overall) for name, value in thresholds["relations"].items()}
    return {**thresholds, "overall": thresholds["overall"] + overall, "relations": moved, FOUND: found}
