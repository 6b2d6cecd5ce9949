"""The sample graph that ships with the package: read with plain Python, checked against what NOTICE.md promises."""

from collections import Counter
from importlib import resources
from pathlib import Path

import pytest

Fact = tuple[str, str, str]
FOLDER = Path(str(resources.files("newcomer.data"))) / "sample"
TABLES = ("train.tsv", "aux.tsv", "valid.tsv", "test.tsv")
SMALLEST = {"train.tsv": 5_000, "aux.tsv": 1_000, "valid.tsv": 250, "test.tsv": 150}


def lines_of(name: str) -> list[str]:
    return (FOLDER / name).read_bytes().decode("utf-8").removesuffix("\n").split("\n")


def facts_of(name: str) -> set[Fact]:
    columns = [line.split("\t") for line in lines_of(name)]
    return {(head, relation, tail) for head, relation, tail in columns}


def entities(facts: set[Fact]) -> set[str]:
    return {end for fact in facts for end in (fact[0], fact[2])}


def pairs(facts: set[Fact], relation: str) -> set[tuple[str, str]]:
    return {(head, tail) for head, name, tail in facts if name == relation}


@pytest.fixture(scope="module")
def graph() -> dict[str, set[Fact]]:
    return {name: facts_of(name) for name in TABLES}


@pytest.fixture(scope="module")
def everything(graph: dict[str, set[Fact]]) -> set[Fact]:
    return set().union(*graph.values())


@pytest.fixture(scope="module")
def newcomers() -> set[str]:
    return set(lines_of("newcomers.txt"))


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_clean_sorted_tab_separated_utf8(name: str) -> None:
    content = (FOLDER / name).read_bytes()
    assert content.endswith(b"\n") and b"\r" not in content and not content.startswith(b"\xef\xbb\xbf")
    lines = lines_of(name)
    facts = [tuple(line.split("\t")) for line in lines]
    assert facts == sorted(facts)
    for fact in facts:
        assert len(fact) == 3
        assert all(part and part == part.strip() and "  " not in part for part in fact)
        assert all(character.isprintable() for part in fact for character in part)
        assert fact[1].replace("_", "").isalpha() and fact[1] == fact[1].lower()


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_large_enough_and_without_duplicates(name: str) -> None:
    lines = lines_of(name)
    assert len(lines) >= SMALLEST[name]
    assert len(set(lines)) == len(lines)


def test_the_whole_sample_stays_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 500_000


def test_no_fact_stands_in_two_tables(graph: dict[str, set[Fact]], everything: set[Fact]) -> None:
    assert sum(map(len, graph.values())) == len(everything)


def test_newcomers_are_in_no_train_or_valid_fact(graph: dict[str, set[Fact]], newcomers: set[str]) -> None:
    assert not newcomers & entities(graph["train.tsv"] | graph["valid.tsv"])


def test_every_entity_is_either_seen_or_a_listed_newcomer(
    graph: dict[str, set[Fact]], everything: set[Fact], newcomers: set[str]
) -> None:
    assert entities(everything) == entities(graph["train.tsv"]) | newcomers


def test_every_relation_is_seen_in_train(graph: dict[str, set[Fact]], everything: set[Fact]) -> None:
    assert {fact[1] for fact in everything} == {fact[1] for fact in graph["train.tsv"]}


def test_auxiliary_facts_touch_a_newcomer_and_tie_each_to_a_seen_entity(
    graph: dict[str, set[Fact]], newcomers: set[str]
) -> None:
    auxiliary = graph["aux.tsv"]
    assert all({head, tail} & newcomers for head, _, tail in auxiliary)
    tied = entities({fact for fact in auxiliary if len({fact[0], fact[2]} & newcomers) == 1})
    assert newcomers <= tied


def test_test_facts_join_one_newcomer_with_two_known_facts_to_a_seen_entity(
    graph: dict[str, set[Fact]], newcomers: set[str]
) -> None:
    known = Counter(end for fact in graph["aux.tsv"] for end in {fact[0], fact[2]})
    tested = [{head, tail} & newcomers for head, _, tail in graph["test.tsv"]]
    assert all(len(ends) == 1 for ends in tested)
    assert all(known[newcomer] >= 2 for newcomer in set().union(*tested))
    assert len(set().union(*tested)) >= 60


def test_young_countries_and_their_capitals_are_newcomers_and_older_ones_are_seen(
    graph: dict[str, set[Fact]], newcomers: set[str]
) -> None:
    young = {"South Sudan", "Juba", "South Sudanese Pound", "Namibia", "Lithuania", "Czechia", "Kosovo", "Timor-Leste"}
    assert young <= newcomers
    assert {"Sudan", "Russia", "Serbia", "Khartoum", "Euro", "Lithuanian"} <= entities(graph["train.tsv"])


def test_borders_are_symmetric_but_for_held_out_halves(graph: dict[str, set[Fact]], everything: set[Fact]) -> None:
    borders = pairs(everything, "borders")
    assert len(borders) > 500
    assert borders == {(tail, head) for head, tail in borders}
    observed = pairs(graph["train.tsv"], "borders")
    share = sum((tail, head) in observed for head, tail in observed) / len(observed)
    assert 0.9 < share < 1


@pytest.mark.parametrize(
    ("relation", "inverse", "least", "most"),
    [
        ("has_capital", "capital_of", 0.85, 0.999),
        ("city_in", "has_city", 0.65, 0.9),
        ("has_city", "city_in", 0.9, 0.999),
        ("uses_currency", "currency_of", 0.75, 0.97),
        ("speaks", "spoken_in", 0.75, 0.97),
    ],
)
def test_inverse_relations_mostly_agree_in_train(
    graph: dict[str, set[Fact]], relation: str, inverse: str, least: float, most: float
) -> None:
    forward, backward = pairs(graph["train.tsv"], relation), pairs(graph["train.tsv"], inverse)
    share = sum((tail, head) in backward for head, tail in forward) / len(forward)
    assert least <= share <= most


def test_two_steps_lead_from_a_city_to_its_region(graph: dict[str, set[Fact]]) -> None:
    train = graph["train.tsv"]
    region_of = dict(pairs(train, "in_region"))
    predicted = {(city, region_of[country]) for city, country in pairs(train, "city_in") if country in region_of}
    stated = pairs(train, "located_in_region")
    assert 0.6 < len(predicted & stated) / len(predicted) < 0.85
    regions = dict(stated)
    assert all(regions.get(city, region) == region for city, region in predicted)


def test_held_out_statements_lose_their_inverse_about_half_of_the_time(graph: dict[str, set[Fact]]) -> None:
    held_out = graph["test.tsv"] | graph["valid.tsv"]
    borders = pairs(held_out, "borders")
    statements = {frozenset(pair) for pair in borders}
    both = sum((tail, head) in borders for head, tail in borders) / 2
    assert 0.3 < both / len(statements) < 0.7


def test_no_country_has_two_capitals_and_no_city_two_countries_or_time_zones(everything: set[Fact]) -> None:
    for relation in ("has_capital", "city_in", "in_timezone", "capital_of", "in_region", "on_continent", "utc_offset"):
        heads = Counter(head for head, _ in pairs(everything, relation))
        assert max(heads.values()) == 1, relation
    assert pairs(everything, "capital_of") == {(tail, head) for head, tail in pairs(everything, "has_capital")}


def test_an_entity_is_of_one_kind(everything: set[Fact]) -> None:
    kinds = Counter(head for head, _ in pairs(everything, "is_a"))
    assert set(kinds.values()) == {1}
    assert set(dict(pairs(everything, "is_a")).values()) >= {"country", "city", "language", "currency", "time zone"}


@pytest.mark.parametrize(
    "fact",
    [
        ("Juba", "capital_of", "South Sudan"),
        ("South Sudan", "borders", "Kenya"),
        ("South Sudan", "in_region", "Eastern Africa"),
        ("Astana", "capital_of", "Kazakhstan"),
        ("Djibouti (city)", "capital_of", "Djibouti"),
        ("São Paulo", "city_in", "Brazil"),
        ("Estonia", "uses_currency", "Euro"),
        ("Bulgaria", "uses_currency", "Euro"),
        ("Ukraine", "official_language", "Ukrainian"),
        ("Montenegro", "official_language", "Montenegrin"),
        ("Timor-Leste", "official_language", "Portuguese"),
        ("Botswana", "borders", "Zambia"),
        ("Japan", "drives_on", "left side"),
        ("Georgia (state)", "state_of", "United States"),
        ("Mumbai", "in_timezone", "India Standard Time"),
    ],
)
def test_known_facts_are_stated(everything: set[Fact], fact: Fact) -> None:
    assert fact in everything


@pytest.mark.parametrize(
    "fact",
    [
        ("Ukraine", "official_language", "Russian"),
        ("Cuba", "borders", "United States"),
        ("Albania", "borders", "Serbia"),
        ("Rio de Janeiro", "capital_of", "Brazil"),
        ("Timor-Leste", "on_continent", "Oceania"),
    ],
)
def test_mistakes_of_the_sources_are_not_repeated(everything: set[Fact], fact: Fact) -> None:
    assert fact not in everything


def test_the_notice_names_sources_licences_and_the_right_counts(
    graph: dict[str, set[Fact]], newcomers: set[str]
) -> None:
    notice = (FOLDER / "NOTICE.md").read_text(encoding="utf-8")
    for words in ("GeoNames", "Creative Commons Attribution 4.0", "UNICODE LICENSE V3", "IANA"):
        assert words in notice
    for name, facts in graph.items():
        assert f"| {name} | {len(facts)} |" in notice
    assert f"| newcomers.txt | {len(newcomers)} |" in notice
