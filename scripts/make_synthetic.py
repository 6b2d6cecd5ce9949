"""Make a large graph of made-up people, places, firms and works, to see how far a machine gets.

    python scripts/make_synthetic.py --facts 10000000 --out large.parquet

A twelfth as many entities as facts, ten relations. Who lives where, works for whom, likes what and knows whom follows
from a hidden community of places and tastes, so that there is something to learn:

* by rules: a citizen of the country that the home lies in, colleagues who know each other, fans of a work's genre;
* by likeness: people of a community like the same works;
* and hubs: places, firms and works are chosen by a power law, and a country has tens of thousands of citizens.

Same options, same bytes.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from newcomer.data.triples import check_written_format, write_triples
from newcomer.errors import NewcomerError, OptionError
from newcomer.files import exists_already
from newcomer.graph import TripleArray, Vocabulary

Ids = npt.NDArray[np.int64]
KINDS = {"person": 0.62, "work": 0.25, "firm": 0.08, "place": 0.05}  # shares of the entities
COUNTRIES, LANGUAGES, GENRES, COMMUNITY = 150, 60, 300, 400  # of the last: people
FACTS_AN_ENTITY, FEWEST = 12, 20_000
ATTRIBUTES = ("works_for", "lives_in", "citizen_of", "speaks", "based_in", "lies_in", "has_genre")  # one each
TASTES = ("likes", "fan_of_genre", "knows")
RELATIONS = (*ATTRIBUTES, *TASTES)
SURPLUS = 1.25  # tastes are drawn, so that some come twice
NOISE = 0.15  # share of the choices that follow nothing


class World:
    """The hidden order: who belongs to which community, and what each community prefers."""

    def __init__(self, entities: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.sizes = {kind: max(COUNTRIES, int(share * entities)) for kind, share in KINDS.items()}
        self.sizes |= {"country": COUNTRIES, "language": LANGUAGES, "genre": GENRES}
        communities = max(2, self.sizes["person"] // COMMUNITY)
        self.community = self.rng.integers(communities, size=self.sizes["person"])
        self.centre = {
            kind: self.rng.integers(self.sizes[kind], size=communities) for kind in ("place", "firm", "work")
        }
        self.country_of = self.by_power_law("country", self.sizes["place"])
        self.language_of = self.rng.integers(LANGUAGES, size=COUNTRIES)
        self.place_of_firm = self.by_power_law("place", self.sizes["firm"])
        self.genre_of = self.by_power_law("genre", self.sizes["work"])

    def by_power_law(self, kind: str, count: int) -> Ids:
        """Choices of which few are very frequent."""
        size = self.sizes[kind]
        return np.minimum((size * self.rng.random(count) ** 3).astype(np.int64), size - 1)

    def preferred(self, kind: str, people: Ids, spread: int) -> Ids:
        """What a person's community prefers, or anything."""
        near = self.centre[kind][self.community[people]] + self.rng.integers(spread, size=len(people))
        return self.mostly(near % self.sizes[kind], self.by_power_law(kind, len(people)))

    def mostly(self, usual: Ids, other: Ids) -> Ids:
        """The usual choice, with some noise."""
        return np.where(self.rng.random(len(usual)) < NOISE, other, usual)


def facts_of(world: World, count: int) -> Iterator[tuple[str, str, Ids, str, Ids]]:
    """Relation, and the kinds and numbers of heads and tails; ``count`` in all, about."""
    everyone = np.arange(world.sizes["person"])
    firm = world.preferred("firm", everyone, 3)
    home = world.mostly(world.place_of_firm[firm], world.by_power_law("place", len(firm)))
    country = world.mostly(world.country_of[home], world.by_power_law("country", len(home)))
    yield "works_for", "person", everyone, "firm", firm
    yield "lives_in", "person", everyone, "place", home
    yield "citizen_of", "person", everyone, "country", country
    yield "speaks", "person", everyone, "language", world.language_of[country]
    yield "based_in", "firm", np.arange(len(world.place_of_firm)), "place", world.place_of_firm
    yield "lies_in", "place", np.arange(len(world.country_of)), "country", world.country_of
    yield "has_genre", "work", np.arange(len(world.genre_of)), "genre", world.genre_of
    left = int(
        SURPLUS * (count - 4 * len(everyone) - len(world.place_of_firm) - len(world.country_of) - len(world.genre_of))
    )
    fans = world.rng.integers(len(everyone), size=left // 2)
    liked = world.preferred("work", fans, 25)
    yield "likes", "person", fans, "work", liked
    some = world.rng.random(len(fans)) < 0.3
    yield "fan_of_genre", "person", fans[some], "genre", world.genre_of[liked[some]]
    yield from _acquaintances(world, everyone, firm, left - len(fans) - int(some.sum()))


def _acquaintances(world: World, everyone: Ids, firm: Ids, count: int) -> Iterator[tuple[str, str, Ids, str, Ids]]:
    """Mostly colleagues, mostly stated by both."""
    by_firm = everyone[np.argsort(firm, kind="stable")]
    one = world.rng.integers(len(everyone) - 8, size=max(0, int(count / 1.8)))
    other = world.mostly(
        one + world.rng.integers(1, 8, size=len(one)), world.rng.integers(len(everyone), size=len(one))
    )
    both = world.rng.random(len(one)) < 0.8
    first, second = by_firm[one], by_firm[other]
    yield "knows", "person", np.concatenate([first, second[both]]), "person", np.concatenate([second, first[both]])


def graph_of(facts: int, seed: int) -> tuple[Vocabulary, Vocabulary, TripleArray]:
    """Entities, relations and facts, each fact once, in an order that follows the seed."""
    world = World(facts // FACTS_AN_ENTITY, seed)
    first = dict(zip(world.sizes, np.cumsum([0, *world.sizes.values()]).tolist(), strict=False))
    rows = [
        np.stack([first[head] + heads, np.full(len(heads), RELATIONS.index(relation)), first[tail] + tails], axis=1)
        for relation, head, heads, tail, tails in facts_of(world, facts)
    ]
    table = np.unique(np.concatenate(rows), axis=0)
    table = table[world.rng.permutation(len(table))]
    tastes = np.flatnonzero(table[:, 1] >= len(ATTRIBUTES))
    table = np.delete(table, tastes[: max(0, len(table) - facts)], axis=0)
    names = Vocabulary([f"{kind} {number}" for kind, size in world.sizes.items() for number in range(size)])
    return names, Vocabulary(RELATIONS), TripleArray.of(table)


def parsed() -> argparse.Namespace:
    """The options, checked before anything is made."""
    parser = argparse.ArgumentParser(description="Make a large made-up graph.")
    parser.add_argument("--facts", type=int, default=1_000_000, help="about how many [default: 1000000]")
    parser.add_argument("--seed", type=int, default=0, help="seed of the drawing [default: 0]")
    parser.add_argument("--out", type=Path, required=True, help=".tsv, .csv, .parquet or .nt; text also .gz or .zst")
    parser.add_argument("--force", action="store_true", help="replace the output if it exists")
    options = parser.parse_args()
    if options.facts < FEWEST:
        raise OptionError(f"--facts {options.facts}: is less than {FEWEST}; give how many facts to make")
    check_written_format(options.out)
    if options.out.exists() and not options.force:
        raise exists_already(options.out)
    return options


def main() -> None:
    """Write the graph; a user's mistake ends in one sentence."""
    try:
        options = parsed()
        entities, relations, triples = graph_of(options.facts, options.seed)
        write_triples(options.out, entities, relations, triples)
    except NewcomerError as error:
        print(f"make_synthetic: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print(f"written {len(triples):,} facts to {options.out}")


if __name__ == "__main__":
    main()
