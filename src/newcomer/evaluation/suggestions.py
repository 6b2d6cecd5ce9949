"""What a model suggests about newcomers, relation by relation, and whether it is right.

Some of what is known of each newcomer is masked, half of it by the seed: of one kind of newcomers whole relations, of
every fourth all relations but one, and where asked for of another fourth single facts. What is left is all that a model
sees. Then all relations are asked that go with what is left, as suggestions do, whether anything of them is masked or
not. Right is what the data set, or the full graph, states.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from newcomer.data.cut import WithheldDataset
from newcomer.evaluation.applicability import likely_relations
from newcomer.evaluation.calibration import best
from newcomer.evaluation.fact_probability import FactExamples
from newcomer.evaluation.questions import Questions
from newcomer.graph import Graph, Ids, InductiveDataset, Mask

RELATIONS = 32  # oriented relations that are asked about an entity
ANSWERS = 10  # to each
MASKED = 0.5  # of an entity's relations, or facts
KINDS = 4  # of masking, in turn
BARE, SINGLE = 3, 2  # those of which one relation stays, and of which single facts are masked
SEED = 17


def mask_facts(dataset: InductiveDataset, newcomers: Ids, seed: Sequence[int], single: bool = False) -> WithheldDataset:
    """The data set without some facts of these newcomers; each keeps one at least."""
    facts, size, width = dataset.auxiliary.triples, 2 * len(dataset.relations), len(dataset.entities)
    generator, masked = np.random.default_rng([*seed, SEED]), []
    for number, newcomer in enumerate(newcomers.tolist()):
        relations, tails = _facts_of(dataset, newcomer)
        units = np.unique(relations, return_inverse=True)[1]
        if single and (number % KINDS == SINGLE or units[-1] == 0):
            units = np.arange(len(relations))
        mine = _hidden(len(np.unique(units)), number % KINDS == BARE, generator)[units]
        masked.append((newcomer * size + relations[mine].astype(np.int64)) * width + tails[mine])
    keys = np.concatenate([np.empty(0, dtype=np.int64), *masked])
    heads, tails = facts.heads.astype(np.int64), facts.tails.astype(np.int64)
    forwards = (heads * size + facts.relations) * width + tails
    backwards = (tails * size + facts.relations + size // 2) * width + heads
    return WithheldDataset.without(dataset, np.isin(forwards, keys) | np.isin(backwards, keys))


def _facts_of(dataset: InductiveDataset, newcomer: int) -> tuple[Ids, Ids]:
    """The oriented relations and tails of a newcomer's facts; one that joins it to itself stands there once."""
    relations, tails = dataset.auxiliary.adjacency.of(newcomer)
    once = (tails != newcomer) | (relations < len(dataset.relations))
    return relations[once], tails[once]


def _hidden(units: int, bare: bool, generator: np.random.Generator) -> Mask:
    """(units,): which of an entity's relations or facts are masked; never all."""
    hide: Mask = generator.random(units) < MASKED
    kept = generator.integers(units)
    if bare or hide.all():
        hide[:] = bare | hide
        hide[kept] = False
    return hide


def asked_newcomers(dataset: InductiveDataset, among: Ids, most: int, seed: int, single: bool = False) -> Ids:
    """Of some newcomers those of whom something can be masked, so many of them at most, drawn by the seed."""
    found = ((one, _facts_of(dataset, one)[0]) for one in among.tolist())
    with_two = [one for one, relations in found if len(relations if single else np.unique(relations)) > 1]
    drawn = np.random.default_rng([seed, SEED, 1]).permutation(np.array(with_two, dtype=np.int32))[:most]
    return np.sort(drawn)


def suggestion_examples(questions: Questions, true: Graph, newcomers: Ids) -> FactExamples:
    """All that is asked about these newcomers, and the answers; ``true`` has the ids of the snapshot.

    Facts that are asked about from their other end are left to that.
    """
    return FactExamples.joined([part for newcomer in newcomers.tolist() for part in _about(questions, true, newcomer)])


def _about(questions: Questions, true: Graph, newcomer: int) -> Iterator[FactExamples]:
    """A part for each relation asked."""
    applies = questions.applies(newcomer)
    asked = likely_relations(applies, RELATIONS)
    scored = questions.engine.scored_many(questions.snapshot, np.full(len(asked), newcomer, dtype=np.int32), asked)
    relations, tails = true.adjacency.of(newcomer)
    for relation, one in zip(asked.tolist(), scored, strict=True):
        question = questions.ask(newcomer, relation, one)
        missing = np.setdiff1d(tails[relations == relation], question.known)
        places = best(one.scores, question.left_out, ANSWERS)
        order = np.arange(len(places))[~questions.asked_from_answer(question, places)]
        places = places[order]
        yield FactExamples(
            np.array([newcomer], dtype=np.int32),
            np.array([relation], dtype=np.int32),
            applies[relation][None],
            np.array([len(missing) > 0]),
            np.array([len(missing)]),
            np.zeros(len(places), dtype=np.int64),
            places.astype(np.int32),
            order,
            question.evidence(places),
            questions.room(question, places),
            question.rule_odds(places),
            np.isin(places, missing),
        )
