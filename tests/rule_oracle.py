"""Rules applied by brute force, straight from their definitions: the oracle of the compiled code."""

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from newcomer.graph import Graph, TripleArray, Vocabulary
from newcomer.rules.rule import Kind, Rule, RuleSet

Triple = tuple[int, int, int]


def graph_of(rows: list[Triple], entities: int, relations: int) -> Graph:
    names = Vocabulary(f"e{i}" for i in range(entities)), Vocabulary(f"r{i}" for i in range(relations))
    return Graph.build(*names, TripleArray.of(rows))


def random_rows(rng: np.random.Generator, entities: int, relations: int, count: int) -> list[Triple]:
    columns = rng.integers(0, entities, count), rng.integers(0, relations, count), rng.integers(0, entities, count)
    return [(int(h), int(r), int(t)) for h, r, t in zip(*columns, strict=True)]


def random_rules(rng: np.random.Generator, entities: int, relations: int, count: int) -> RuleSet:
    """Rules of every kind with arbitrary figures (confidences repeat, so that levels are shared)."""
    rules = []
    for _ in range(count):
        kind = Kind(int(rng.integers(1, 7)))
        body = [int(rng.integers(0, 2 * relations)) for _ in range(3)]
        about = kind in (Kind.CONSTANT, Kind.EXISTS)
        head = int(rng.integers(0, 2 * relations if about else relations))
        length = {Kind.ONE: 1, Kind.TWO: 2, Kind.BOTH: 2, Kind.THREE: 3}.get(kind, 1)
        if kind == Kind.BOTH:
            body[:2] = sorted(rng.choice(2 * relations, 2, replace=False).tolist())
        support = int(rng.integers(1, 4)) * 10
        rules.append(
            Rule(
                kind,
                head,
                *(body[i] if i < length else -1 for i in range(3)),
                head_constant=int(rng.integers(0, entities)) if about else -1,
                body_constant=int(rng.integers(0, entities)) if kind == Kind.CONSTANT else -1,
                support=support,
                body_size=40,
                pca_body_size=30,
                head_size=100,
            )
        )
    return RuleSet.of(rules, relations)


def plain(start: int, relation: int, end: int, size: int) -> Triple:
    return (start, relation, end) if relation < size else (end, relation - size, start)


Found = Iterator[tuple[Triple, tuple[Triple, ...]]]


def groundings(
    rule: Rule,
    entity: int,
    own: Callable[[int], set[Triple]],
    entities: int,
    size: int,
    known: set[Triple] | None = None,
) -> Found:
    """(conclusion, premises) of one rule for one entity: a walk goes on by the own facts of whom it comes to.

    ``known`` are the conclusions not to draw: the entity's own facts, unless given.
    """
    known = own(entity) if known is None else known
    everyone, mine = range(entities), own(entity)
    if rule.kind in (Kind.CONSTANT, Kind.EXISTS):
        yield from _about(rule, entity, own, entities, size, known)
        return
    for x, y in [(entity, y) for y in everyone] + [(x, entity) for x in everyone]:
        if x == y:
            continue
        conclusion = (x, rule.head, y)
        if conclusion in known:
            continue
        if rule.kind in (Kind.ONE, Kind.BOTH):
            bodies = [rule.body1] if rule.kind == Kind.ONE else [rule.body1, rule.body2]
            premises = tuple(plain(x, b, y, size) for b in bodies)
            if all(p in mine for p in premises):
                yield conclusion, premises
        elif rule.kind == Kind.TWO:
            for z in everyone:
                first, last = plain(x, rule.body1, z, size), plain(z, rule.body2, y, size)
                near, far = (first, last) if x == entity else (last, first)
                if z != entity and near in mine and far in own(z):
                    yield conclusion, (first, last)
        else:
            for z, w in product(everyone, everyone):
                if len({x, y, z, w}) < 4:
                    continue
                steps = (
                    plain(x, rule.body1, z, size), plain(z, rule.body2, w, size), plain(w, rule.body3, y, size),
                )  # fmt: skip
                walk = [(entity, steps[0]), (z, steps[1]), (w, steps[2])]
                if y == entity:
                    walk = [(entity, steps[2]), (w, steps[1]), (z, steps[0])]
                if all(step in own(one) for one, step in walk):
                    yield conclusion, steps


def _about(
    rule: Rule, entity: int, own: Callable[[int], set[Triple]], entities: int, size: int, known: set[Triple]
) -> Found:
    def body(variable: int, facts: set[Triple]) -> Triple | None:
        ends = [rule.body_constant] if rule.kind == Kind.CONSTANT else range(entities)
        return next((f for c in ends if (f := plain(variable, rule.body1, c, size)) in facts), None)

    conclusion = plain(entity, rule.head, rule.head_constant, size)
    premise = body(entity, own(entity))
    if premise is not None and rule.head_constant != entity and conclusion not in known:
        yield conclusion, (premise,)
    if rule.head_constant == entity:
        for variable in range(entities):
            # The body is looked up from its constant, or from the variable where anyone will do.
            around = own(rule.body_constant if rule.kind == Kind.CONSTANT else variable)
            conclusion, premise = plain(variable, rule.head, entity, size), body(variable, around)
            if variable != entity and premise is not None and conclusion not in known:
                yield conclusion, (premise,)
