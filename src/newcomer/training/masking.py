"""Queries about the held-out newcomers of most facts: some of these facts are masked, and asked for.

The feature weights of the ensemble are learned from what a hold-out asks. Newcomers are drawn for it at random, and
most have a dozen facts or two: where the observed graph has few hubs, so has a hold-out. Yet a country or a profession
may arrive with thousands of facts, and of such a hub other features are worth more: what its neighbours have in common
rather than how often each is an answer.
"""

import numpy as np

from newcomer.data.cut import WithheldDataset
from newcomer.evaluation.ranking import Queries, queries_of
from newcomer.graph import InductiveDataset, Mask

SHARE = 0.25  # of all facts of newcomers: the busiest are those who have so many together
LEAST = 10  # facts of each of them
MASKED = 0.12  # of their facts
MOST = 1_000  # queries


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
