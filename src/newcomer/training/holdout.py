"""Choosing without looking at test: newcomers are held out of the observed graph by the rule that made the data set.

A share of the valid triples is drawn, or as many as are enough. Their heads, tails or both leave the observed graph:
what is left is O', the facts that tie them to it are their auxiliary facts, and the drawn triples are asked. Neither
the newcomers of the data set nor their facts nor the test triples are looked at, but for which end of test is new.

Where test and valid state which triples are false, both kinds are drawn, since the ends of false ones are new in test,
too, and the hold-out has labels. It is then cut as such sets are: auxiliary are all facts with one drawn end, also
those of an entity that has no others and so becomes a newcomer itself.

The feature weights of the ensemble are learned from what a hold-out asks. Newcomers are drawn for it at random, and
most have a dozen facts or two: where the observed graph has few hubs, so has a hold-out. Yet a country or a profession
may arrive with thousands of facts, and of such a hub other features are worth more: what its neighbours have in common
rather than how often each is an answer. So some facts of a hold-out's busiest newcomers are masked, and asked for.
"""

from dataclasses import dataclass

import numpy as np

from newcomer.config import Config
from newcomer.data.cut import WithheldDataset
from newcomer.data.split import HOLDOUT_TEST, SIDES, SplitRule, ends_on, entities_of, split_graph
from newcomer.data.tables import assemble
from newcomer.errors import DatasetError
from newcomer.evaluation.classification import TripleScorer, checked_scores, cross_fitted
from newcomer.evaluation.metrics import MEASURED
from newcomer.evaluation.ranking import Queries, RankingProtocol, Scorer, align, evaluate_under, queries_of
from newcomer.graph import Graph, InductiveDataset, Mask, TripleArray, concatenate

SHARE = 0.25  # of all facts of newcomers: the busiest are those who have so many together
LEAST = 10  # facts of each of them
MASKED = 0.12  # of their facts
MOST = 1_000  # queries
MOST_DRAWN = 4_000  # triples: more newcomers would cost much in a large graph, and teach little


@dataclass(frozen=True, eq=False)
class HoldOut:
    """Newcomers held out of a graph, what is asked about them, and which ends of the drawn triples they are."""

    dataset: InductiveDataset
    queries: Queries
    unseen: str
    full: Graph | None = None

    @property
    def has_labels(self) -> bool:
        """Whether it states of some triples that they are false."""
        labels = self.dataset.test.labels
        return labels is not None and bool((labels <= 0).any())

    def classification_metrics(self, scorer: TripleScorer, seed: int) -> dict[str, float]:
        """How a scorer tells true triples from false ones, each by thresholds that were found without it."""
        triples = self.dataset.test
        scores = checked_scores(self.dataset, scorer, triples)
        return cross_fitted(triples, scores, np.random.default_rng([seed, 5]))

    def ranking_metrics(self, scorer: Scorer) -> dict[str, float]:
        """By the known filter, all candidates and mean ties; by the full filter too, where there is one."""
        filters = ("known",) if self.full is None else ("known", "full")
        protocols = [RankingProtocol(filter=name) for name in filters]
        known, *rest = evaluate_under(self.dataset, scorer, protocols, self.full, self.queries)
        figures = {name: known.metrics()[name] for name in MEASURED}
        for result in rest:
            figures |= {f"full_{name}": result.metrics()[name] for name in MEASURED}
        return figures


def hold_out_newcomers(dataset: InductiveDataset, config: Config, full: Graph | None = None) -> HoldOut:
    """Hold newcomers out of the observed graph, by the seed."""
    training = config.training
    unseen = unseen_side(dataset) if training.validation_unseen == "auto" else training.validation_unseen
    rule = SplitRule(unseen, rate=drawn_rate(dataset, config), seed=config.seed)
    try:
        held = _cut_with_labels(dataset, rule) or split_graph(_without_newcomers(dataset), rule)
    except DatasetError:
        held = None
    if held is None or len(held.test) == 0:
        raise DatasetError(
            f"no newcomers to validate on can be held out of the {len(dataset.observed):,} observed facts of "
            f"{dataset.name}; change training.validation_rate or training.validation_unseen, or set "
            "training.validation_rate=0 to train for training.epochs without validation"
        )
    queries, most = queries_of(held), training.validation_queries
    if most is not None and len(queries) > most:
        drawn = np.random.default_rng([config.seed, 2]).choice(len(queries), size=most, replace=False)
        queries = queries.take(np.sort(drawn))
    return HoldOut(held, queries, unseen, None if full is None else align(full, held))


def drawn_rate(dataset: InductiveDataset, config: Config) -> float:
    """Which percentage of the valid triples is drawn, or of the facts that stand in for them."""
    asked = len(dataset.valid) or HOLDOUT_TEST * len(dataset.observed)
    return min(config.training.validation_rate, 100 * MOST_DRAWN / max(asked, 1))


def unseen_side(dataset: InductiveDataset) -> str:
    """Which end of the test triples is new most often: subject, object or both."""
    asked = dataset.test.positives
    head, tail = ~dataset.is_seen[asked.heads], ~dataset.is_seen[asked.tails]
    counts = {"subject": head & ~tail, "object": tail & ~head, "both": head & tail}
    return max(SIDES, key=lambda side: int(counts[side].sum()))  # the first of equals


def _cut_with_labels(dataset: InductiveDataset, rule: SplitRule) -> InductiveDataset | None:
    """A hold-out of true and false triples; None where the data set is not of that kind, or one kind is not drawn."""
    valid, seen = dataset.valid, dataset.is_seen
    if valid.labels is None or dataset.test.labels is None:
        return None
    valid = valid.take(seen[valid.heads] & seen[valid.tails])
    count = round(len(valid) * (rule.rate or 0) / 100)
    drawn = valid.take(np.sort(np.random.default_rng(rule.seed).choice(len(valid), size=count, replace=False)))
    is_drawn = np.zeros(len(dataset.entities), dtype=bool)
    is_drawn[ends_on(rule.unseen, drawn)] = True
    facts = dataset.observed.triples
    head, tail = is_drawn[facts.heads], is_drawn[facts.tails]
    observed, auxiliary = facts.take(~head & ~tail), facts.take(head ^ tail)
    known = entities_of(concatenate([observed, auxiliary]), len(dataset.entities))
    asked = drawn.take(known[drawn.heads] & known[drawn.tails])
    if len(observed) == 0 or asked.labels is None or len(np.unique(asked.labels > 0)) < 2:
        return None
    parts = {"train": observed, "aux": auxiliary, "valid": TripleArray.empty(), "test": asked}
    return assemble(dataset.name, dataset.entities.names, dataset.relations.names, parts)


def _without_newcomers(dataset: InductiveDataset) -> InductiveDataset:
    """The observed graph alone, with the valid triples about its entities as what may be asked."""
    valid, seen = dataset.valid.positives, dataset.is_seen
    nothing = Graph.build(dataset.entities, dataset.relations, TripleArray.empty())
    asked = valid.take(seen[valid.heads] & seen[valid.tails])
    return InductiveDataset(dataset.name, dataset.observed, nothing, TripleArray.empty(), asked)


def mask_facts_of_busiest(
    dataset: InductiveDataset, unseen: str, most: int, seed: int
) -> tuple[WithheldDataset, Queries]:
    """The data set without some facts, drawn by the seed and the ids, and the queries that ask for them.

    At most ``most``, `MOST`, and the share `MASKED` of the busiest newcomers' facts. A newcomer is asked about from the
    end that is new in the hold-out (subject, object or both), for a seen entity.
    """
    facts, seen, busy = dataset.auxiliary.triples, dataset.is_seen, _busiest(dataset)
    head, tail = busy[facts.heads] & seen[facts.tails], busy[facts.tails] & seen[facts.heads]
    places = np.flatnonzero({"subject": head, "object": tail, "both": head | tail}[unseen])
    count = min(MOST, most, round(MASKED * len(places)))
    masked: Mask = np.zeros(len(facts), dtype=bool)
    masked[np.random.default_rng([seed, 11]).choice(places, size=count, replace=False)] = True
    left = WithheldDataset.without(dataset, masked)
    return left, queries_of(left, facts.take(masked))


def _busiest(dataset: InductiveDataset) -> Mask:
    """Per entity, whether it is among the newcomers of most facts."""
    degrees = np.where(dataset.is_newcomer, dataset.auxiliary.degrees, 0)
    order = np.argsort(-degrees, kind="stable")
    before = np.cumsum(degrees[order]) - degrees[order]
    busy = np.zeros(len(degrees), dtype=bool)
    busy[order[before < SHARE * degrees.sum()]] = True
    found: Mask = busy & (degrees >= LEAST)
    return found
