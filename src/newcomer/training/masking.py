"""Questions about the busiest newcomers of an exam: some of their facts are hidden, and asked for.

Whom to believe is learned from what an exam asks. That is about whoever was drawn, most of whom have a dozen facts or
two: where the observed graph has few hubs, so has an exam. Yet a country or a profession may arrive with thousands,
and whoever is tied to thousands tells more by what ties them than by how often they answer.
"""

import numpy as np

from newcomer.data.cut import WithheldDataset
from newcomer.evaluation.ranking import Queries, queries_of
from newcomer.graph import InductiveDataset, Mask

SHARE = 0.25  # of all facts of newcomers: who is among the busiest that have so many together
LEAST = 10  # facts of one who is busy
HIDDEN = 0.12  # of their facts
MOST = 1_000  # questions


def mask_facts_of_busiest(
    dataset: InductiveDataset, unseen: str, most: int, seed: int
) -> tuple[WithheldDataset, Queries]:
    """The data set without some facts, drawn by the seed and the ids, and the questions that ask for them.

    There are as many as ``most``, as `MOST` and as `HIDDEN` of the busiest newcomers' facts allow.

    A newcomer is asked about from the end that is new in the exam (subject, object or both), for someone seen.
    """
    facts, seen, busy = dataset.auxiliary.triples, dataset.is_seen, _busiest(dataset)
    head, tail = busy[facts.heads] & seen[facts.tails], busy[facts.tails] & seen[facts.heads]
    places = np.flatnonzero({"subject": head, "object": tail, "both": head | tail}[unseen])
    count = min(MOST, most, round(HIDDEN * len(places)))
    hidden: Mask = np.zeros(len(facts), dtype=bool)
    hidden[np.random.default_rng([seed, 11]).choice(places, size=count, replace=False)] = True
    left = WithheldDataset.without(dataset, hidden)
    return left, queries_of(left, facts.take(hidden))


def _busiest(dataset: InductiveDataset) -> Mask:
    """Per entity, whether it is among the busiest newcomers."""
    told = np.where(dataset.is_newcomer, dataset.auxiliary.degrees, 0)
    order = np.argsort(-told, kind="stable")
    before = np.cumsum(told[order]) - told[order]
    busy = np.zeros(len(told), dtype=bool)
    busy[order[before < SHARE * told.sum()]] = True
    found: Mask = busy & (told >= LEAST)
    return found
