"""Rules and their figures: a table of many (`RuleSet`), a view of one (`Rule`), and the text that people read.

A rule concludes ``r(x,y)``. The relations of its body are *oriented*: id ``r`` below ``R`` goes from head to tail,
``r + R`` from tail to head. Kinds, with bodies as chains from x to y:

    ONE       r1: x -> y                          likes(x,y) => knows(x,y)
    TWO       r1: x -> z, r2: z -> y              borders(x,z), in_region(z,y) => in_region(x,y)
    BOTH      r1: x -> y and r2: x -> y, r1 < r2  visits(x,y), likes(x,y) => knows(x,y)
    THREE     r1: x -> z, r2: z -> w, r3: w -> y
    CONSTANT  r1: x -> c2, head x -> c            speaks(x,French) => lives_in(x,France)
    EXISTS    r1: x -> any y, head x -> c         plays_for(x,_) => is_a(x,athlete)

The last two are about one variable. Their head is oriented as well: with ``r + R`` the variable is the tail, as in
``in_region(y,Europe) => has_country(EU,y)``.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from newcomer.graph import Ids, Mask, Offsets, Vocabulary

NONE = -1  # no such atom, no such constant
UNCOUNTED = -1  # a figure that the source of the rule did not give
SMOOTHING = 5  # body pairs more that are taken to have failed: small counts are trusted less
Shares = npt.NDArray[np.float64]
Share = TypeVar("Share")


class ShapeError(ValueError):
    """Atoms that make no rule of a kind known here."""


class Kind(IntEnum):
    """The shape of a rule's body."""

    ONE = 1
    TWO = 2
    BOTH = 3
    THREE = 4
    CONSTANT = 5
    EXISTS = 6


UNARY_KINDS = (Kind.CONSTANT, Kind.EXISTS)  # about one variable: their head holds a constant


class Variable(str):
    """A variable's name, as opposed to an entity's id."""

    __slots__ = ()


class Atom(NamedTuple):
    """``relation(left, right)`` with a plain relation id; a term is a variable or an entity's id."""

    relation: int
    left: Variable | int
    right: Variable | int


X, Y, Z, W, ANY = (Variable(name) for name in ("x", "y", "z", "w", "_"))
CHAIN_STOPS = {Kind.ONE: (X, Y), Kind.TWO: (X, Z, Y), Kind.THREE: (X, Z, W, Y)}  # the variables along a body


class Confidences(Generic[Share]):
    """The shares that follow from the counts: one of each for a rule, a column of each for many."""

    def share(self, whole: str, more: int = 0) -> Share:
        """Support / a count (and so many more); NaN where one of the two is not counted, 0 for nothing of nothing."""
        raise NotImplementedError

    @property
    def head_coverage(self) -> Share:
        """The share of the head relation's facts that a rule concludes."""
        return self.share("head_size")

    @property
    def confidence(self) -> Share:
        """The share of the body's pairs for which the head is a fact."""
        return self.share("body_size")

    @property
    def pca_confidence(self) -> Share:
        """The same among the pairs of which something is known: see `newcomer.rules.mining.horn`."""
        return self.share("pca_body_size")

    @property
    def smoothed_confidence(self) -> Share:
        """Confidence as if five more body pairs had failed: trusts small counts less."""
        return self.share("body_size", SMOOTHING)


@dataclass(frozen=True)
class Rule(Confidences[float]):
    """One rule: ids as in the columns of `RuleSet`, figures as integers."""

    kind: Kind
    head: int
    body1: int
    body2: int = NONE
    body3: int = NONE
    head_constant: int = NONE
    body_constant: int = NONE
    support: int = UNCOUNTED
    body_size: int = UNCOUNTED
    pca_body_size: int = UNCOUNTED
    head_size: int = UNCOUNTED

    def share(self, whole: str, more: int = 0) -> float:
        part, total = self.support, getattr(self, whole)
        if part < 0 or total < 0:
            return float("nan")
        return float(part / (total + more)) if total + more > 0 else 0.0

    def atoms(self, num_relations: int) -> tuple[Atom, list[Atom]]:
        """The head and the body with variables x, y, z, w."""
        size, relations = num_relations, (self.body1, self.body2, self.body3)
        if self.kind in UNARY_KINDS:
            variable = X if self.head < size else Y
            end: Variable | int = self.body_constant if self.kind == Kind.CONSTANT else ANY
            head = _oriented(self.head, size, variable, self.head_constant)
            return head, [_oriented(self.body1, size, variable, end)]
        if self.kind == Kind.BOTH:
            return Atom(self.head, X, Y), [_oriented(r, size, X, Y) for r in relations[:2]]
        stops = CHAIN_STOPS[self.kind]
        steps = zip(relations, stops[:-1], stops[1:], strict=False)
        return Atom(self.head, X, Y), [_oriented(r, size, a, b) for r, a, b in steps]

    def text(self, relations: Vocabulary, entities: Vocabulary | None = None) -> str:
        """The rule as people write it; `parse_rule` reads it back."""
        head, body = self.atoms(len(relations))
        *premises, conclusion = (_atom_text(atom, relations, entities) for atom in (*body, head))
        return ", ".join(premises) + " => " + conclusion


@dataclass(frozen=True, eq=False)
class RuleSet(Confidences[Shares]):
    """Many rules as columns; row ``i`` of every column belongs to rule ``i``. Columns given become read-only."""

    num_relations: int
    kinds: Ids
    heads: Ids
    body1: Ids
    body2: Ids
    body3: Ids
    head_constants: Ids
    body_constants: Ids
    support: Offsets
    body_size: Offsets
    pca_body_size: Offsets
    head_size: Offsets

    def __post_init__(self) -> None:
        for name in COLUMNS:
            dtype = np.int64 if name in FIGURES else np.int32
            column = np.ascontiguousarray(getattr(self, name), dtype=dtype)
            column.setflags(write=False)
            object.__setattr__(self, name, column)

    @classmethod
    def of(cls, rules: Iterable[Rule], num_relations: int) -> "RuleSet":
        """From single rules."""
        rows = [tuple(getattr(rule, f.name) for f in fields(Rule)) for rule in rules]
        table = np.array(rows, dtype=np.int64).reshape(-1, len(COLUMNS))
        return cls(num_relations, *table.T)

    @classmethod
    def of_columns(cls, num_relations: int, rules: int, **columns: Any) -> "RuleSet":
        """From some columns (arrays or single numbers); all others are "none" or "not counted"."""
        given = {name: columns.get(name, NONE) for name in COLUMNS}
        return cls(
            num_relations, **{k: v if isinstance(v, np.ndarray) else np.full(rules, v) for k, v in given.items()}
        )

    @classmethod
    def empty(cls, num_relations: int) -> "RuleSet":
        """No rules."""
        return cls.of_columns(num_relations, 0)

    def __len__(self) -> int:
        return len(self.heads)

    def __getitem__(self, row: int) -> Rule:
        values = [int(getattr(self, name)[row]) for name in COLUMNS]
        return Rule(Kind(values[0]), *values[1:])

    def __iter__(self) -> Iterator[Rule]:
        columns = [getattr(self, name).tolist() for name in COLUMNS]
        for kind, *rest in zip(*columns, strict=True):
            yield Rule(Kind(kind), *rest)

    def __repr__(self) -> str:
        return f"RuleSet({len(self):,} rules over {self.num_relations:,} relations)"

    def share(self, whole: str, more: int = 0) -> Shares:
        part, total = self.support, getattr(self, whole)
        shares: Shares = np.divide(part, total + more, out=np.zeros(len(part)), where=total + more > 0)
        shares[(part < 0) | (total < 0)] = np.nan
        return shares

    def where(self, which: Mask | npt.NDArray[np.integer]) -> "RuleSet":
        """The rules under a mask, or at these rows in this order."""
        return RuleSet(self.num_relations, *(getattr(self, name)[which] for name in COLUMNS))

    def canonical_order(self) -> npt.NDArray[np.intp]:
        """Rows by head relation, kind, head direction, body, constants: the one order every file has."""
        by = [self.body_constants, self.head_constants, self.body3, self.body2, self.body1]
        return np.lexsort([*by, self.heads, self.kinds, self.heads % max(self.num_relations, 1)])

    def sorted(self) -> "RuleSet":
        """The rules in canonical order."""
        return self.where(self.canonical_order())

    def texts(self, relations: Vocabulary, entities: Vocabulary | None = None) -> list[str]:
        """Every rule as text."""
        return [rule.text(relations, entities) for rule in self]


FIGURES = ("support", "body_size", "pca_body_size", "head_size")
COLUMNS = tuple(f.name for f in fields(RuleSet) if f.name != "num_relations")


def concatenate_rules(parts: Sequence[RuleSet], num_relations: int) -> RuleSet:
    """Rule sets one after the other."""
    if not parts:
        return RuleSet.empty(num_relations)
    return RuleSet(num_relations, *(np.concatenate([getattr(p, name) for p in parts]) for name in COLUMNS))


def _oriented(relation: int, num_relations: int, start: Variable | int, end: Variable | int) -> Atom:
    """The plain atom of an oriented relation from ``start`` to ``end``."""
    return Atom(relation, start, end) if relation < num_relations else Atom(relation - num_relations, end, start)


def rule_of_atoms(head: Atom, body: Sequence[Atom], num_relations: int) -> Rule:
    """The rule that these atoms write, whatever its variables are called and in whatever order its body stands.

    A variable that occurs once stands for any entity. Raises ShapeError, with the reason, for a shape no kind has.
    """
    if isinstance(head.left, Variable) and isinstance(head.right, Variable):
        if head.left == head.right:
            raise ShapeError("the head's two variables are the same")
        return _chain_rule(head, list(body), num_relations)
    return _constant_rule(head, body, num_relations)


def _step(atom: Atom, start: Variable | int, size: int) -> tuple[int, Variable | int] | None:
    """The oriented relation and the end of an atom read from ``start``; None if it does not touch it."""
    if atom.left == start and type(atom.left) is type(start):
        return atom.relation, atom.right
    if atom.right == start and type(atom.right) is type(start):
        return atom.relation + size, atom.left
    return None


def _chain_rule(head: Atom, body: list[Atom], size: int) -> Rule:
    x, y = head.left, head.right
    if len(body) == 2 and all({atom.left, atom.right} == {x, y} for atom in body):
        first, second = sorted(_step(atom, x, size)[0] for atom in body)  # type: ignore[index]
        if first == second:
            raise ShapeError("the same atom stands twice in the body")
        return Rule(Kind.BOTH, head.relation, first, second)
    here, taken, visited = x, [], {x}
    while body:
        steps = [(atom, step) for atom in body if (step := _step(atom, here, size)) is not None]
        if len(steps) != 1:
            raise ShapeError("the body is not a chain from the head's first variable to its second")
        atom, (relation, here) = steps[0]
        body.remove(atom)
        taken.append(relation)
        if here in visited or not isinstance(here, Variable):
            raise ShapeError("the body is not a chain from the head's first variable to its second")
        visited.add(here)
    kinds = {1: Kind.ONE, 2: Kind.TWO, 3: Kind.THREE}
    if here != y or len(taken) not in kinds:
        raise ShapeError("the body is not a chain of one to three atoms from the head's first variable to its second")
    return Rule(kinds[len(taken)], head.relation, *taken)


def _constant_rule(head: Atom, body: Sequence[Atom], size: int) -> Rule:
    variable = head.left if isinstance(head.left, Variable) else head.right
    if not isinstance(variable, Variable) or len(body) != 1:
        raise ShapeError("a head with a constant needs a variable beside it and a body of one atom")
    step, conclusion = _step(body[0], variable, size), _step(head, variable, size)
    if step is None or conclusion is None or step[1] == variable:
        raise ShapeError("the body does not hold the head's variable")
    (relation, end), (head_relation, constant) = step, conclusion
    if isinstance(end, Variable):
        return Rule(Kind.EXISTS, head_relation, relation, head_constant=int(constant))
    return Rule(Kind.CONSTANT, head_relation, relation, head_constant=int(constant), body_constant=end)


_PLAIN = re.compile(r"[\w./:#@+-]+")
_TOKEN = re.compile(r'\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<plain>[\w./:#@+-]+)|(?P<sign>=>|[(),]))')
_VARIABLES = {str(v): v for v in (X, Y, Z, W, ANY)}


def is_plain(name: str) -> bool:
    """Whether a name needs no quotes."""
    return _PLAIN.fullmatch(name) is not None


def quoted(name: str) -> str:
    """A name as it stands in a rule's text: bare when it is plain, else in double quotes as JSON writes it."""
    return name if is_plain(name) else json.dumps(name, ensure_ascii=False)


def _term_text(term: Variable | int, entities: Vocabulary | None) -> str:
    if isinstance(term, Variable):
        return str(term)
    name = f"#{term}" if entities is None else entities[term]
    return json.dumps(name, ensure_ascii=False) if name in _VARIABLES else quoted(name)


def _atom_text(atom: Atom, relations: Vocabulary, entities: Vocabulary | None) -> str:
    left, right = _term_text(atom.left, entities), _term_text(atom.right, entities)
    return f"{quoted(relations[atom.relation])}({left},{right})"


def parse_rule(text: str, relations: Vocabulary, entities: Vocabulary | None = None) -> Rule:
    """Read what `Rule.text` wrote (figures are not in it). Raises ValueError with the reason."""
    tokens = _tokens(text)
    # Six tokens an atom, and a sign between two.
    atoms = [_atom_of(tokens[start : start + 6], relations, entities) for start in range(0, len(tokens) + 1, 7)]
    signs = [sign for _, sign in tokens[6::7]]
    if signs != [","] * (len(atoms) - 2) + ["=>"]:
        raise ValueError("expected atoms with commas between them, then one '=>' and one atom")
    return rule_of_atoms(atoms[-1], atoms[:-1], len(relations))


def parse_atom(text: str, relations: Vocabulary, entities: Vocabulary | None = None) -> Atom:
    """Read one atom of a rule's text. Raises ValueError with the reason."""
    return _atom_of(_tokens(text), relations, entities)


def names_in(text: str) -> tuple[set[str], set[str]]:
    """The relations and the entities that a rule's text names. Raises ValueError where it is no text of atoms."""
    tokens = _tokens(text)
    relations, entities = set(), set()
    for place, (kind, name) in enumerate(tokens):
        if kind == "sign":
            continue
        if place + 1 < len(tokens) and tokens[place + 1] == ("sign", "("):
            relations.add(name)
        elif kind == "quoted" or name not in _VARIABLES:
            entities.add(name)
    return relations, entities


def _tokens(text: str) -> list[tuple[str, str]]:
    """(quoted, plain or sign; value) for each word and sign of a rule."""
    found, place, end = [], 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            raise ValueError(f"cannot read {text[place:].strip()[:20]!r}")
        kind = str(match.lastgroup)
        value = match[kind]
        found.append((kind, json.loads(value) if kind == "quoted" else value))
        place = match.end()
    return found


def _atom_of(tokens: Sequence[tuple[str, str]], relations: Vocabulary, entities: Vocabulary | None) -> Atom:
    signs = [value if kind == "sign" else "name" for kind, value in tokens]
    if signs != ["name", "(", "name", ",", "name", ")"]:
        raise ValueError("expected an atom such as relation(x,y)")
    relation = relations.id(tokens[0][1])
    if relation < 0:
        raise ValueError(f"unknown relation {tokens[0][1]!r}")
    return Atom(relation, _term_of(tokens[2], entities), _term_of(tokens[4], entities))


def _term_of(token: tuple[str, str], entities: Vocabulary | None) -> Variable | int:
    kind, name = token
    if kind == "plain" and name in _VARIABLES:
        return _VARIABLES[name]
    identifier = NONE if entities is None else entities.id(name)
    if identifier < 0:
        raise ValueError(f"unknown entity {name!r}")
    return identifier
