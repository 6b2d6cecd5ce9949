"""Reasons for an answer in words, ordered by what the features behind them add to its score.

The score of an ensemble is a sum of parts, one of each feature (`newcomer.models.ensemble`). How large a part is says
little: it is compared with that of a *typical candidate*, which has of every feature the median over all candidates of
the question. The three features that follow from rules count as one. So

    score of the answer = score of the typical candidate + what each feature adds

and what a feature adds is by how much the score would be lower if the answer were typical in it.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from newcomer.graph import Mask
from newcomer.models.engine import Scored
from newcomer.models.ensemble import Column
from newcomer.predictor.answers import SHOWN, Evidence, Reason, in_logic

RULES = "rules"
ONE_FEATURE = {"rule_rank": RULES, "rule_confidence": RULES, "rule_odds": RULES}  # one kind of evidence behind them
COMPARED = 4096  # entities that stand for all where there are more: those at even distances
WEIGHED = 3  # facts that are named of those that the encoder weighs
NOTHING = "nothing speaks for it more than for a typical candidate"


class Case(NamedTuple):
    """What a sentence about one feature of an answer is made of."""

    feature: str
    adds: float
    evidence: tuple[Evidence, ...]
    entity: str
    asked: str  # the fact that the answer states, of anyone
    frequency: Callable[[], int]  # how many known facts are like that
    is_unobserved: bool

    @property
    def is_for(self) -> bool:
        return self.adds > 0


class Parts(NamedTuple):
    """What each feature adds to a candidate's score, and whether a rule infers it; nothing without an ensemble."""

    of: Mapping[str, float]
    is_inferred: bool


def parts_of(scored: Scored, place: int) -> Parts:
    """Those of one candidate."""
    is_inferred = scored.confidence is not None and bool(scored.confidence[place] > 0)
    return Parts({feature: float(part[place]) for feature, part in scored.parts.items()}, is_inferred)


def typical_parts(scored: Scored, candidates: Mask) -> Parts:
    """Those of the typical candidate, rules as one feature."""
    step = -(-len(candidates) // COMPARED)
    kept = candidates[::step]
    if not kept.any():
        step, kept = 1, candidates
    if scored.confidence is None or not kept.any():
        return Parts({}, False)
    columns: dict[str, Column] = {}
    for feature, part in scored.parts.items():
        name, column = ONE_FEATURE.get(feature, feature), part[::step][kept]
        columns[name] = columns[name] + column if name in columns else column
    medians = {name: float(np.median(column)) for name, column in columns.items()}
    return Parts(medians, bool((scored.confidence[::step][kept] > 0).mean() > 0.5))


def added_by_each(own: Parts, typical: Parts) -> dict[str, float]:
    """What each feature adds to an answer beyond the typical candidate; what adds most comes first.

    Where rules infer neither, what they add is not theirs: all whom no rule infers are alike to them, but for the
    weights of who is linked, and for frequency, which breaks ties.
    """
    added = {name: -part for name, part in typical.of.items()}
    for feature, part in own.of.items():
        added[ONE_FEATURE.get(feature, feature)] += part
    if added and not own.is_inferred and not typical.is_inferred:
        added["linked" if own.of["linked"] else "frequency"] += added.pop(RULES)
    return dict(sorted(added.items(), key=lambda one: -one[1]))


def reason(case: Case) -> Reason | None:
    """The reason that a feature is; none where it adds nothing that a reader would see."""
    if round(case.adds, SHOWN) == 0:
        return None
    return Reason(case.feature, case.adds, SENTENCES[case.feature](case), readable(case.evidence))


def readable(evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """Without that of no weight."""
    return tuple(one for one in evidence if isinstance(one, tuple) or one.is_readable)


def without_parts(groundings: tuple[Evidence, ...], weighed: tuple[Evidence, ...]) -> tuple[Reason, ...]:
    """The reasons where the embedding alone decides: rules, whose conclusions it has seen, then its attention."""
    rules, facts = readable(groundings), readable(weighed)
    found = [Reason(RULES, None, str(rules[0]), rules)] if rules else []
    unruled = "" if rules else "no rule infers it; "
    if facts:
        most = ", ".join(str(one) for one in facts[:WEIGHED])
        found.append(Reason("embedding", None, f"{unruled}the encoder gave most attention to {most}", facts))
    return tuple(found) or (Reason("embedding", None, f"{unruled}its vector alone decides"),)


def _of_rules(case: Case) -> str:
    shown = readable(case.evidence)
    if shown:
        return str(shown[0]) if case.is_for else f"what rules say of it counts for less: {shown[0]}"
    if case.evidence:
        return f"only rules infer it that are hardly ever right (confidence below {0.5 * 10**-SHOWN})"
    return "no rule infers it"


def _of_embedding(case: Case) -> str:
    facts = ", ".join(str(one) for one in readable(case.evidence)[:WEIGHED])
    fits = f"its vector fits that of {case.entity}" if case.is_for else f"its vector does not fit that of {case.entity}"
    return f"{fits}, which rests most on {facts}" if facts else fits


def _of_propagation(case: Case) -> str:
    shown = readable(case.evidence)
    if not case.is_for:
        return f"paths of known facts lead from {case.entity} to others rather than to it (propagation)"
    return str(shown[0]) if shown else f"paths of known facts lead from {case.entity} to it (propagation)"


def _of_similarity(case: Case) -> str:
    shown = readable(case.evidence)
    if not shown:
        return "it shares no fact with the known answers"
    return str(shown[0]) if case.is_for else "it has less in common with the known answers than others"


def _of_linked(case: Case) -> str:
    facts = [one for one in case.evidence if isinstance(one, tuple)]
    return f"already joined by {in_logic(facts)}" if facts else f"no known fact joins it and {case.entity}"


def _of_frequency(case: Case) -> str:
    count = case.frequency()
    return f"{case.asked} is known of {f'{count:,}' if count else 'no'} {'entities' if count > 1 else 'entity'}"


def _of_unobserved(case: Case) -> str:
    return "it has no observed facts" if case.is_unobserved else "it has observed facts"


SENTENCES: dict[str, Callable[[Case], str]] = {
    RULES: _of_rules,
    "embedding": _of_embedding,
    "propagation": _of_propagation,
    "similarity": _of_similarity,
    "linked": _of_linked,
    "frequency": _of_frequency,
    "unobserved": _of_unobserved,
}
