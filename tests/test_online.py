"""One-atom rules counted over all that is known, for relations that were seldom observed, against their definition."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newcomer.evaluation.alignment import scorer_for
from newcomer.graph import Graph, Overlay, TripleArray, Vocabulary
from newcomer.predictor import Predictor
from newcomer.rules.ranking import OnlineRules, RuleRanker
from newcomer.rules.rule import RuleSet, parse_rule
from newcomer.rules.statistics import RARE, GraphStatistics
from nn_oracle import one_thread
from overlay_world import FACT, RELATIONS, Fact, changes, of_newcomers, oriented, overlay_of
from test_predictor import BLENDED, HEARING, table, trained
from training_world import FOLDED, parts, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)


def plainly(facts: set[Fact], relation: int) -> tuple[list[int], list[int]]:
    """Support and sizes from the definition."""
    known = oriented(facts)
    sizes = Counter(one for _, one, _ in known)
    support = Counter(one for head, one, tail in known if (head, relation, tail) in known and one != relation)
    return [support[one] for one in range(2 * RELATIONS)], [sizes[one] for one in range(2 * RELATIONS)]


def observed_times(facts: set[Fact], relation: int) -> int:
    return sum(one == relation % RELATIONS for _, one, _ in facts - of_newcomers(facts))


@given(st.sets(FACT, max_size=60), st.integers(0, 2 * RELATIONS - 1))
def test_online_rules_are_what_else_joins_the_same_pairs(facts, relation):
    found = GraphStatistics(overlay_of(facts)).online_rules(relation)
    assert (found is None) == (observed_times(facts, relation) > RARE)
    if found is not None:
        support, sizes = plainly(facts, relation)
        assert found.support.tolist() == support and found.sizes.tolist() == sizes
        assert found.confidence.tolist() == [one / (size + 5) for one, size in zip(support, sizes, strict=True)]


@given(changes(), st.integers(0, 2 * RELATIONS - 1))
def test_who_came_and_went_leaves_the_online_rules_of_now(change, relation):
    before = GraphStatistics(overlay_of(change.before))
    before.online_rules(relation)  # what was counted then is not counted now
    found = GraphStatistics(change.derived).online_rules(relation)
    assert (found is None) == (observed_times(change.before, relation) > RARE)
    if found is not None:
        assert (found.support.tolist(), found.sizes.tolist()) == plainly(change.now, relation)


def test_facts_vote_by_the_confidence_of_their_relation():
    online = OnlineRules(2, np.array([3, 1, 0, 3]), np.array([7, 1, 4, 7]))  # confidences 3/12, 1/6, none, 3/12
    facts = np.array([0, 0, 1, 2, 3, 3], np.int32), np.array([5, 9, 5, 7, 6, 8], np.int32)
    votes, strengths = online.added_to((np.empty((0, 2), np.int32), np.empty(0)), 9, *facts)
    assert votes.tolist() == [[5, 0], [6, 0], [8, 0], [5, 1]]  # nobody answers for itself, and nothing infers 7
    assert strengths.tolist() == [0.25, 1 / 6]
    by_rules = np.array([[7, 0], [5, 2], [4, 2]], np.int32), np.array([0.9, 0.5, 0.2])
    votes, strengths = online.added_to(by_rules, 9, *facts)
    assert votes.tolist() == [[7, 0], [5, 1], [6, 1], [8, 1], [5, 2], [4, 2], [5, 3]]
    assert strengths.tolist() == [0.9, 0.25, 0.2, 1 / 6]


def test_online_rules_of_an_inverse_relation_read_as_rules_of_the_relation():
    support = np.array([0, 4, 0, 2, 0, 0])  # of r0, r1, r2 and their inverses
    names = Vocabulary(["r0", "r1", "r2"])
    forward, backward = OnlineRules(2, support, support + 1), OnlineRules(5, support, support + 1)
    assert forward.rule(1).text(names) == backward.rule(4).text(names) == "r1(x,y) => r2(x,y)"
    assert forward.rule(3).text(names) == backward.rule(0).text(names) == "r0(y,x) => r2(x,y)"
    assert (forward.rule(1).support, forward.rule(1).body_size) == (4, 5)


def test_rules_of_a_relation_never_observed_are_counted_when_it_is_asked_about():
    names = Vocabulary([f"e{i}" for i in range(8)]), Vocabulary(["likes", "hears", "knows"])
    observed = Graph.build(*names, TripleArray.of([(0, 0, 1), (1, 0, 2), (2, 1, 3)]))
    stated = [(5, 0, 1), (5, 2, 1), (6, 0, 2), (6, 2, 2), (7, 0, 3), (7, 1, 0)]  # liked are known
    overlay, ranker = Overlay.of(observed, TripleArray.of(stated), 5), RuleRanker.of(RuleSet.empty(3))
    statistics = GraphStatistics(overlay)
    of_tails, of_heads = (
        ranker.evidence(overlay, entity, relation, statistics.online_rules(relation))
        for entity, relation in ((7, 2), (1, 5))
    )
    assert of_tails.confidence.tolist() == [0, 0, 0, 2 / (5 + 5), 0, 0, 0, 0]  # two of the five who like know
    assert of_heads.confidence.nonzero()[0].tolist() == [0]  # knows(?, 1): who likes it, as far as was observed
    assert (of_tails.scores.argmax(), of_tails.scores[3]) == (3, 1.0)
    assert not ranker.evidence(overlay, 7, 2).confidence.any()


VOTERS = [(f"q{i}", "votes_in", f"city{i}") for i in range(3)]  # where they live; of q3 it is not known
ELECTION_FACTS = [*parts()["aux"], *VOTERS]
ELECTION = world(aux=ELECTION_FACTS)
RULE = "lives_in(x,y) => votes_in(x,y)"


def election() -> Predictor:
    return Predictor(trained(*FOLDED, *BLENDED, HEARING, dataset=ELECTION), threads=1)


def test_what_newcomers_state_of_a_relation_answers_for_the_next_one():
    first, second = election().tails("q3", "votes_in", k=2)
    assert first.entity == "city3" and first.score > second.score
    [reason] = first.because.groundings
    assert first.because.strongest == reason and reason.premises == (("q3", "lives_in", "city3"),)
    assert (reason.rule, reason.support, reason.confidence) == (RULE, 3, 3 / (24 + 4 + 5))
    assert parse_rule(reason.rule, ELECTION.relations, ELECTION.entities).head == ELECTION.relations.id("votes_in")
    assert "(newcomers' facts counted, too)" in str(first.because)
    assert second.because.groundings == ()


def test_who_comes_and_goes_is_counted_and_uncounted():
    predictor = election()
    before = [(one.entity, one.score, str(one.because)) for one in predictor.tails("q3", "votes_in", k=5)]
    predictor.add([("Lyonesse", "lives_in", "city1"), ("Lyonesse", "votes_in", "city1")])
    [reason] = predictor.tails("q3", "votes_in", k=1)[0].because.groundings
    assert (reason.support, reason.confidence) == (4, 4 / (24 + 5 + 5))
    predictor.remove("Lyonesse")
    assert [(one.entity, one.score, str(one.because)) for one in predictor.tails("q3", "votes_in", k=5)] == before


def test_a_seen_entity_is_asked_by_its_observed_facts():
    found = election().tails("p05", "votes_in", k=1)[0]
    assert found.entity == "city5" and [one.rule for one in found.because.groundings] == [RULE]
    [voter] = [one for one in election().heads("votes_in", "city5", k=40) if one.entity == "p05"]
    assert [(one.rule, one.premises) for one in voter.because] == [(RULE, (("p05", "lives_in", "city5"),))]


def test_a_predictor_counts_as_evaluation_does():
    predictor, names = election(), ["q0", "q3", "p05", "city3"]
    scorer, size = (
        scorer_for(trained(*FOLDED, *BLENDED, HEARING, dataset=ELECTION), ELECTION, threads=1),
        2 * len(ELECTION.relations),
    )
    asked = np.repeat(ELECTION.entities.ids(names), size), np.tile(np.arange(size, dtype=np.int32), len(names))
    answers = ELECTION.entities.ids(sorted(ELECTION.entities.names.to_pylist()))
    expected = scorer.scores(*asked)[:, answers]
    found = table(predictor, names, sorted(ELECTION.entities.names.to_pylist()))
    assert np.array_equal(found, expected)


def test_reasons_are_as_strong_as_what_counts_in_the_score():
    """What newcomers bring makes a rule that was mined weaker where it is counted: then the mined one has the say."""
    dwell = [("p00", "dwells_in", "city0"), ("p01", "dwells_in", "city1"), ("p02", "dwells_in", "city2")]
    votes = [(name, "votes_in", city) for name, _, city in dwell]
    crowd = [(f"n{i:02}", "dwells_in", f"city{i % 3}") for i in range(20)]
    facts = [*parts()["aux"], ("q3", "dwells_in", "city3"), *VOTERS, *crowd]
    dataset = world(train=[*parts()["train"], *dwell, *votes], aux=facts)
    bundle = trained(*FOLDED, *BLENDED, HEARING, "rules.min_support=1", dataset=dataset)
    predictor, told = Predictor(bundle, threads=1), set()
    engine, snapshot = predictor.engine, predictor._snapshot
    for name in ("q3", "n00", "p05"):
        for relation in ("votes_in", "dwells_in"):
            asked = snapshot.id(name), predictor.names.relation(relation)
            strength = engine.signals(snapshot.graph, *asked).rules.confidence
            for answer in predictor.tails(name, relation, k=60):
                reasons = answer.because.groundings
                best = max((one.confidence for one in reasons), default=0.0)
                assert best == pytest.approx(strength[snapshot.id(answer.entity)])
                assert len({(one.rule, one.premises) for one in reasons}) == len(reasons)
                told |= {(one.rule.split("(")[0], one.counted) for one in reasons}
    assert {("dwells_in", False), ("lives_in", True)} <= told


def test_nobody_has_reasons_to_be_its_own_answer_and_what_is_known_needs_none():
    [own] = [one for one in election().tails("q3", "votes_in", k=60) if one.entity == "q3"]
    assert own.because.groundings == ()
    known = election().tails("q0", "votes_in", k=60, known=True)
    [city] = [one for one in known if one.entity == "city0"]
    assert city.because.groundings == ()


def test_a_rule_that_was_mined_and_is_counted_is_told_once():
    seldom = world(
        train=[*parts()["train"], ("p00", "votes_in", "city0"), ("p01", "votes_in", "city1")], aux=ELECTION_FACTS
    )
    bundle = trained(*FOLDED, *BLENDED, HEARING, "rules.min_support=1", dataset=seldom)
    mined = bundle.rules.texts(bundle.observed.relations, bundle.observed.entities)
    found = Predictor(bundle, threads=1).tails("q3", "votes_in", k=1)[0]
    told = [(one.rule, one.support, one.counted) for one in found.because.groundings]
    assert RULE in mined and (RULE, 5, True) in told
    assert len({rule for rule, _, _ in told}) == len(told)


def test_models_without_graph_statistics_count_nothing():
    plain = Predictor(trained(*FOLDED, *BLENDED, dataset=ELECTION), threads=1)
    assert [one.because.groundings for one in plain.tails("q3", "votes_in", k=3)] == [()] * 3
