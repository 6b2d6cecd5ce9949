"""``newcomer mine`` and ``newcomer enrich``."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from newcomer.cli import options
from newcomer.cli.common import check_free, load, print_json, print_table, progress, refuse_input, working
from newcomer.cli.options import at_least, takes_read_options
from newcomer.errors import DatasetError, OptionError, OutputError, check_name, unknown_name

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.graph import Graph, Ids, InductiveDataset, Overlay
    from newcomer.rules.rule import RuleSet
    from newcomer.rules.virtual_neighbors import VirtualNeighbors

LOGIC_KINDS = "one,two,both"
ENRICHMENT = "enrichment.json"
RULE_SUFFIXES = ("", ".tsv", ".txt", ".rules")


@takes_read_options
def mine(
    data: options.DataArgument,
    out: Annotated[Path, Option(help="The rule file to write (.tsv, also .gz or .zst).")],
    kinds: Annotated[str, Option(help="Some of one, two, both, three, constant, exists; or `all`.")] = LOGIC_KINDS,
    min_support: Annotated[int, Option(help="Facts a rule must explain.")] = 2,
    min_head_coverage: Annotated[float, Option(help="Share of its relation's facts a rule must explain.")] = 0.01,
    min_confidence: Annotated[float, Option(help="Smallest standard confidence.")] = 0.0,
    min_pca: Annotated[float, Option(help="Smallest PCA confidence.")] = 0.0,
    min_head_size: Annotated[int, Option(help="Facts the head's relation must have.")] = 1,
    max_rules: Annotated[int | None, Option(help="Keep only so many rules, the best.")] = None,
    memory_limit: Annotated[float | None, Option(help="MiB for counts; more slices, never a failure.")] = None,
    time_limit: Annotated[
        float | None, Option(help="Seconds; head relations not finished by then are left out.")
    ] = None,
    samples: Annotated[int, Option(help="Samples for bodies of three atoms.")] = 20_000_000,
    with_auxiliary: Annotated[
        bool, Option("--with-auxiliary", help="Mine the auxiliary facts too (the `refreshed` protocol).")
    ] = False,
    threads: options.Threads = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    top: Annotated[int, Option(callback=at_least(0), help="How many of the best rules to print.")] = 10,
    *,
    reading: "ReadOptions",
) -> None:
    """Mine the rules of a graph, with exact support and confidence."""
    from newcomer.rules.files.rule_table import write_rules
    from newcomer.rules.mining import MiningPlan, mine_rules

    plan = MiningPlan(
        kinds=_kinds(kinds),
        min_support=min_support,
        min_head_coverage=min_head_coverage,
        min_confidence=min_confidence,
        min_pca=min_pca,
        min_head_size=min_head_size,
        max_rules=max_rules,
        memory_limit=_bytes(memory_limit),
        time_limit=time_limit,
        samples=samples,
    )
    check_rule_file(out, force)
    dataset = load(data, reading).dataset
    graph = dataset.known_facts() if with_auxiliary else dataset.observed
    with progress("mining") as advance:
        result = mine_rules(graph, plan, seed, threads, advance)
    write_rules(result.rules, out, graph.relations, graph.entities)
    print_best(result.rules, graph, top, "pca")
    typer.echo(f"{len(result.rules):,} rules from {len(graph):,} facts in {result.seconds:.1f} s, written to {out}")
    if not result.complete:
        unfinished = graph.num_relations - len(result.complete_relations)
        typer.echo(f"time limit reached: {unfinished:,} of {graph.num_relations:,} head relations left out", err=True)


def _kinds(text: str) -> tuple[Any, ...]:
    from newcomer.rules.rule import Kind

    kinds = {kind.name.lower(): kind for kind in Kind}
    names = list(kinds) if text.strip() == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in kinds:
            raise unknown_name("kind of rule", name, [*kinds, "all"])
    return tuple(kinds[name] for name in dict.fromkeys(names))


def _bytes(mebibytes: float | None) -> int | None:
    if mebibytes is None:
        return None
    if not 0 < mebibytes < math.inf:
        raise OptionError(f"--memory-limit is {mebibytes:g}, but must be a number of MiB above 0")
    return math.ceil(mebibytes * 2**20)


def check_rule_file(out: Path, force: bool) -> None:
    """Refuse a file that cannot be written before the work is done, not after."""
    from newcomer.files import plain_suffix

    check_free(out, force)
    if plain_suffix(out) not in RULE_SUFFIXES:
        raise OutputError(f"{out}: rule files are text; give a name that ends in .tsv or .txt (also .gz or .zst)")


def print_best(rules: "RuleSet", graph: "Graph", top: int, measure: str, title: str = "Best rules") -> None:
    """A table of the best rules in words."""
    import numpy as np

    from newcomer.rules.virtual_neighbors import strength_of

    if top == 0 or len(rules) == 0:
        return
    # Smoothed confidence decides, so that rules with many facts behind them come first.
    order = np.lexsort((np.arange(len(rules)), -rules.support, -np.nan_to_num(rules.smoothed_confidence)))[:top]
    best = rules.where(order)
    strength = strength_of(best, measure)
    texts = best.texts(graph.relations, graph.entities)
    rows = list(zip(texts, strength.tolist(), best.support.tolist(), strict=True))
    print_table(title, ("rule", f"{measure} confidence", "support"), rows)


@takes_read_options
def enrich(
    data: options.DataArgument,
    out: Annotated[Path, Option(help="The folder to write.")],
    rules: options.Rules = None,
    who: Annotated[
        str, Option(help="Entities to enrich: test (newcomers of test), newcomers, seen or all.")
    ] = "newcomers",
    entities: Annotated[Path | None, Option(help="A file with one entity's name a line, instead of --who.")] = None,
    measure: Annotated[str, Option(help="Confidence used: pca, standard, smoothed.")] = "pca",
    min_confidence: Annotated[float, Option(help="Smallest confidence of a rule.")] = 0.8,
    min_support: Annotated[int, Option(help="Facts a rule must explain.")] = 10,
    min_head_size: Annotated[int, Option(help="Facts the head's relation must have.")] = 1,
    paths: Annotated[bool, Option("--paths/--no-paths", help="Use symmetric-path rules too.")] = True,
    walks: Annotated[
        int, Option(help="Random walks per entity: more find more neighbours, and fewer true ones.")
    ] = 1000,
    facts: options.WalkedFacts = "own",
    max_per_entity: Annotated[
        int | None, Option(help="Keep only so many virtual triples per entity, the best.")
    ] = None,
    threads: options.Threads = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    as_json: options.Json = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Infer virtual neighbours, with confidence and reasons, and write them."""
    from newcomer.data import locate
    from newcomer.files import as_text, fresh_folder
    from newcomer.rules.files.neighbor_table import write_neighbors
    from newcomer.rules.limits import thread_count
    from newcomer.rules.mining.symmetric_paths import PathLimits
    from newcomer.rules.virtual_neighbors import Grounder, NeighborLimits, virtual_neighbors

    limits = NeighborLimits(min_confidence, measure, min_support, min_head_size, max_per_entity)
    path_limits = PathLimits(walks=walks) if paths else None
    loaded = load(data, reading)
    dataset = loaded.dataset
    chosen = _entities_of(dataset, who, entities)
    walked = facts_for(dataset, facts)
    refuse_input(out, locate(data))
    with fresh_folder(out, force, ENRICHMENT) as staging:
        known = rules_for(dataset, rules, threads, seed)
        with working("grounding"):
            grounder = Grounder(known, limits)
            found = virtual_neighbors(grounder, walked, chosen, path_limits, seed, thread_count(threads))
            write_neighbors(staging, found, dataset.entities, dataset.relations)
        summary = _summary(dataset, found, chosen, who if entities is None else as_text(entities.name))
        text = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
        (staging / ENRICHMENT).write_text(text, encoding="utf-8")
    if as_json:
        print_json(summary)
    else:
        _print_summary(summary, out)


def _entities_of(dataset: "InductiveDataset", who: str, entities: Path | None) -> "Ids":
    import numpy as np

    from newcomer.data.split import read_names

    if entities is not None:
        return read_names(entities, dataset.entities)
    choices = {
        "test": dataset.test_newcomers,
        "newcomers": dataset.newcomers,
        "seen": np.flatnonzero(dataset.is_seen).astype(np.int32),
        "all": np.arange(len(dataset.entities), dtype=np.int32),
    }
    check_name("group of entities", who, choices)
    if len(choices[who]) == 0:
        raise DatasetError(f"{dataset.name} has no entities of the group {who!r}; choose another with --who")
    return choices[who]


def facts_for(dataset: "InductiveDataset", which: str) -> "Overlay":
    """The facts that rules are applied to, by name."""
    from newcomer.graph import Overlay

    check_name("set of facts", which, ("own", "known"))
    if which == "own":
        return Overlay.of_dataset(dataset)
    return Overlay.of(dataset.known_facts(), num_seen=len(dataset.entities))


def rules_for(
    dataset: "InductiveDataset", path: Path | None, threads: int | None, seed: int, refreshed: bool = False
) -> "RuleSet":
    """Rules from a file, or mined from the observed graph (``refreshed``: from the auxiliary facts as well)."""
    from newcomer.rules.files.rule_table import read_rules
    from newcomer.rules.mining import MiningPlan, mine_rules

    if path is not None:
        return read_rules(path, dataset.relations, dataset.entities)
    with progress("mining") as advance:
        graph = dataset.known_facts() if refreshed else dataset.observed
        return mine_rules(graph, MiningPlan(), seed, threads, advance).rules


def _summary(dataset: "InductiveDataset", found: "VirtualNeighbors", chosen: "Ids", who: str) -> dict[str, Any]:
    from newcomer.data.dataset import parts_of
    from newcomer.data.describe import neighbours_per_predicted_fact
    from newcomer.graph import Graph

    virtual = found.degrees(len(dataset.entities))
    degrees, triples = dataset.auxiliary.degrees, found.triples
    inside = {}
    for role in ("valid", "test"):
        graph = Graph.build(dataset.entities, dataset.relations, parts_of(dataset)[role].positives)
        inside[role] = int(graph.contains(triples.heads, triples.relations, triples.tails).sum())
    return {
        "dataset": dataset.name,
        "entities": who,
        "asked": len(chosen),
        "helped": int((virtual[chosen] > 0).sum()),
        "virtual_triples": len(found),
        "by_kind": {"logic": int((found.kinds == 0).sum()), "path": int((found.kinds == 1).sum())},
        "groundings": len(found.grounding_rule),
        "neighbours_per_predicted_fact": {
            "before": neighbours_per_predicted_fact(dataset, degrees),
            "after": neighbours_per_predicted_fact(dataset, degrees + virtual),
        },
        "virtual_triples_in": inside,
    }


def _print_summary(summary: dict[str, Any], out: Path) -> None:
    ratio, share = summary["neighbours_per_predicted_fact"], summary["helped"] / summary["asked"]
    rows = [
        ("entities", f"{summary['asked']:,} ({summary['entities']})"),
        ("helped by a virtual neighbour", f"{summary['helped']:,} ({100 * share:.1f} %)"),
        ("virtual triples", f"{summary['virtual_triples']:,}"),
        ("  by logic rules, by symmetric paths alone", "{logic:,}, {path:,}".format(**summary["by_kind"])),
        ("groundings (reasons)", f"{summary['groundings']:,}"),
        ("of the virtual triples, in valid", f"{summary['virtual_triples_in']['valid']:,}"),
        ("of the virtual triples, in test", f"{summary['virtual_triples_in']['test']:,}"),
    ]
    if ratio["before"] is not None:
        rows.append(("neighbours per predicted fact", f"{ratio['before']:.2f} -> {ratio['after']:.2f}"))
    print_table(f"written to {out}", ("", ""), rows)
