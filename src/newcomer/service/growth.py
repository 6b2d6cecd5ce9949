"""The next model of a graph that has grown: what it is trained on, and what it says of answers given before.

A model knows the graph it was trained on. That and what a store holds by now, the facts of newcomers and, where they
are asked for, the accepted answers, is the observed graph of the next one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from newcomer.data.tables import assemble
from newcomer.exchange.selection import accepted_answers, current_facts, stated_by
from newcomer.graph import UNKNOWN, InductiveDataset, TripleArray, Vocabulary, concatenate
from newcomer.models.bundle import Bundle
from newcomer.predictor import Predictor
from newcomer.service.stored_predictor import Scope, StoredPredictor
from newcomer.store import Fact, StoredAnswer
from newcomer.store.reading import Reading

GROWN = "+store@"  # in the name of a data set, before the position that it has grown to
MOVED = 10  # answers that a comparison names: those whose probability moved most


@dataclass(frozen=True, eq=False)
class Growth:
    """The data set of the next model, and what of it is new: of the store at a position of its log."""

    dataset: InductiveDataset
    position: int
    facts: int
    accepted: int
    entities: int
    relations: int


def growth_of(bundle: Bundle, state: Reading, accepted: bool = False) -> Growth:
    """What a model was trained on, and what a store holds by now."""
    facts = [fact for stated in current_facts(state) for fact in stated.facts]
    answers = [stated_by(one.given) for one in accepted_answers(state)] if accepted else []
    name = f"{bundle.dataset_name.partition(GROWN)[0]}{GROWN}{state.position}"
    dataset = _grown(bundle, [*facts, *answers], name)
    before, after = bundle.observed, dataset.observed
    of_facts = _grown(bundle, facts, name).observed if answers else after
    return Growth(
        dataset,
        state.position,
        len(of_facts) - len(before),
        len(after) - len(of_facts),
        int((after.degrees > 0).sum() - (before.degrees > 0).sum()),
        len(dataset.relations) - len(bundle.observed.relations),
    )


def _grown(bundle: Bundle, facts: Sequence[Fact], name: str) -> InductiveDataset:
    """The observed graph of a model with more facts; newcomers stored with the model who are in it now are seen."""
    observed = bundle.observed
    entities = _extended(observed.entities, (end for head, _, tail in facts for end in (head, tail)))
    relations = _extended(observed.relations, (relation for _, relation, _ in facts))
    heads, tails = (entities.ids([fact[end] for fact in facts]) for end in (0, 2))
    more = TripleArray(heads, relations.ids([relation for _, relation, _ in facts]), tails)
    train, later = concatenate([observed.triples, more]), TripleArray.empty()
    if bundle.auxiliary is not None:
        known, later = bundle.auxiliary.triples, bundle.auxiliary.triples
        is_seen = np.zeros(len(entities), dtype=bool)
        is_seen[np.concatenate([train.heads, train.tails])] = True
        among_seen = is_seen[known.heads] & is_seen[known.tails]
        train, later = concatenate([train, known.take(among_seen)]), known.take(~among_seen)
    return assemble(name, entities.names, relations.names, {"train": train, "aux": later})


def _extended(vocabulary: Vocabulary, names: Iterable[str]) -> Vocabulary:
    """A vocabulary with more names behind it."""
    fresh = [name for name in dict.fromkeys(names) if name not in vocabulary]
    return Vocabulary(pa.concat_arrays([vocabulary.names, pa.array(fresh, type=pa.string())]))


class Again(NamedTuple):
    """An answer that was given before, asked again of two models: its probability, and whether it is the first."""

    fact: Fact
    before: float
    after: float
    first_before: bool
    first_after: bool

    @property
    def moved(self) -> float:
        """By how much the next model thinks it more probable."""
        return self.after - self.before


@dataclass(frozen=True)
class Compared:
    """Recorded answers asked again: those that are ``known`` by now need no answer, ``unasked`` ones cannot be asked.

    An answer cannot be asked where the entity, the answer or the relation is not there any more.
    """

    answers: tuple[Again, ...]
    known: int
    unasked: int

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON can hold them, with the answers that moved most."""
        most = sorted(self.answers, key=lambda one: -abs(one.moved))[:MOVED]
        before, after = ([getattr(one, name) for one in self.answers] for name in ("before", "after"))
        return {
            "asked": len(self.answers),
            "known": self.known,
            "unasked": self.unasked,
            "first_before": sum(one.first_before for one in self.answers),
            "first_after": sum(one.first_after for one in self.answers),
            "stayed_first": sum(one.first_before and one.first_after for one in self.answers),
            "probability_before": _mean(before),
            "probability_after": _mean(after),
            "moved": _mean([abs(one.moved) for one in self.answers]),
            "most": [{"fact": list(one.fact), "before": one.before, "after": one.after} for one in most],
        }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def compared(before: StoredPredictor, after: StoredPredictor, state: Reading, most: int) -> Compared:
    """The answers that were recorded last, asked again of two models over the same state of a store."""
    recorded = state.answers(after=max(0, state.count.answers - most), limit=most)
    found: list[Again] = []
    known = unasked = 0
    for answer, old, new in _in_both(recorded, before, after, state):
        fact = stated_by(answer.given)
        if any(one.fact == fact for one in state.facts_of([answer.given.entity])) or _is_trained_on(fact, after.model):
            known += 1
        elif not (_can_ask(fact, old.model) and _can_ask(fact, new.model)):
            unasked += 1
        else:
            found.append(_asked(answer, fact, old.model, new.model))
    return Compared(tuple(found), known, unasked)


def _in_both(
    answers: Iterable[StoredAnswer], before: StoredPredictor, after: StoredPredictor, state: Reading
) -> Iterator[tuple[StoredAnswer, Scope, Scope]]:
    for answer in answers:
        entity = answer.given.entity
        yield answer, before.scope_in(state, [entity]), after.scope_in(state, [entity])


def _is_trained_on(fact: Fact, model: Predictor) -> bool:
    """Whether a fact is of a model's observed graph."""
    head, relation, tail = model.names.seen(fact[0]), model.names.relations.id(fact[1]), model.names.seen(fact[2])
    return UNKNOWN not in (head, relation, tail) and bool(model.bundle.observed.contains(head, relation, tail))


def _can_ask(fact: Fact, model: Predictor) -> bool:
    return fact[1] in model.names.relations and fact[0] in model and fact[2] in model


def _asked(answer: StoredAnswer, fact: Fact, before: Predictor, after: Predictor) -> Again:
    """An answer asked of both models."""
    old, new = (model.classify([fact])[0].probability for model in (before, after))
    return Again(fact, old, new, _is_first(answer, before), _is_first(answer, after))


def _is_first(answer: StoredAnswer, model: Predictor) -> bool:
    """Whether a model answers the question so, before anything else."""
    given = answer.given
    if given.direction == "heads":
        best = model.heads(given.relation, given.entity, 1)
    else:
        best = model.tails(given.entity, given.relation, 1)
    return [one.entity for one in best] == [given.answer]
