"""The whole package on the small real graph that ships with it, for someone who has never seen a knowledge graph.

``demo.py [FOLDER] [--set NAME=VALUE ...]`` runs the commands it shows and leaves what they write in the folder;
settings are handed on to the training. Every run prints the same text: how long things took is left out.
"""

import argparse
import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from textwrap import fill
from typing import Any

from newcomer import load_dataset
from newcomer.cli.app import app
from newcomer.errors import NewcomerError
from newcomer.rules.files.rule_table import read_rule_table
from newcomer.rules.rule import Kind, Rule

NEWCOMER = "Atlantis"
FACTS = [(NEWCOMER, "borders", "Portugal"), (NEWCOMER, "borders", "Spain"), (NEWCOMER, "speaks", "Portuguese")]
DURATION = re.compile(r",? (?:after|in) [\d.,]+ s\b")
LETTERS = {"x": "A", "y": "C", "z": "B"}


def main() -> None:
    """Run all chapters."""
    parser = argparse.ArgumentParser(description="The whole package on the sample graph.")
    parser.add_argument("folder", nargs="?", default="demo", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the training")
    given = parser.parse_args()
    try:
        run_all(given.folder, given.set)
    except NewcomerError as error:  # a wrong --set, or another demo in the same folder
        print(f"demo: {error}", file=sys.stderr)
        sys.exit(2)


def run_all(folder: Path, settings: list[str]) -> None:
    """All chapters, one after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    the_graph()
    the_split(folder)
    the_rules(folder)
    the_model(folder, settings)
    the_newcomer(folder)


def the_graph() -> None:
    """What a knowledge graph is."""
    chapter("1. A graph of facts")
    paragraph("A knowledge graph is a list of facts, each relating two things. Some of those about Portugal:")
    data = load_dataset("sample")
    portugal, names, relations = data.entities.id("Portugal"), data.entities, data.relations
    own = [row for row in data.observed.triples.rows.tolist() if row[0] == portugal]
    first_of_each = {relation: (relation, tail) for _, relation, tail in reversed(own)}
    for relation, tail in sorted(first_of_each.values())[:6]:
        print(f"    Portugal  {relations[relation]}  {names[tail]}")
    paragraph(
        "The sample graph has thousands of them, about countries, cities, languages and currencies. It is cut in two. "
        "`train` is about those who were there before 1990. The newcomers are the states that became independent since "
        "then, and their cities. Some facts of each (`aux`) are given; others (`test`) are held out to evaluate on."
    )
    run("describe", "sample", "--top", "4")


def the_split(folder: Path) -> None:
    """How a data set with newcomers is made of any graph."""
    chapter("2. A data set with newcomers")
    paragraph(
        "Any graph can be split like that, at random instead of by history: some entities are declared new, a few of "
        "their facts stay known, the others are test queries."
    )
    run("split", "sample", str(folder / "split"), "--unseen", "subject", "--rate", "20", "--seed", "0", "--force")


def the_rules(folder: Path) -> None:
    """The rules of the graph."""
    chapter("3. Rules")
    paragraph("Which rules hold in `train`? All of them are mined and counted:")
    run("mine", "sample", "--out", str(folder / "rules.tsv"), "--top", "5", "--force")
    paragraph("Some of them in words, and how many of 100 conclusions that can be checked are right:")
    rules, relations, _ = read_rule_table(folder / "rules.tsv")
    best: dict[int, Rule] = {}
    for rule in sorted(rules, key=lambda one: (-one.smoothed_confidence, -one.support)):
        if rule.kind == Kind.TWO and rule.pca_confidence < 1:
            best.setdefault(rule.head, rule)
    for rule in list(best.values())[:5]:
        print(f"    {in_words(rule, list(relations))}: {100 * rule.pca_confidence:.0f} of 100, {rule.support:,} times")


def in_words(rule: Rule, relations: list[str]) -> str:
    """A rule as a sentence about A, B and C."""
    head, body = rule.atoms(len(relations))
    *ifs, then = (
        f"{LETTERS[str(atom.left)]} {relations[atom.relation]} {LETTERS[str(atom.right)]}" for atom in (*body, head)
    )
    return f"if {' and '.join(ifs)}, then {then}"


def the_model(folder: Path, settings: list[str]) -> None:
    """Training and evaluation."""
    chapter("4. Training")
    paragraph(
        "A model is an ensemble of a small neural network and these rules. Its weights are learned on entities that "
        "are held out of the graph and treated as newcomers. The real newcomers are not used."
    )
    changes = [word for setting in settings for word in ("--set", setting)]
    run("train", "sample", "--out", str(folder / "model"), "--force", *changes)
    chapter("5. Evaluation")
    paragraph(
        "Every fact of test becomes a query, such as (South Sudan, borders, ?). The model ranks all entities as "
        "answers. Hits@1 is the share of queries whose right answer comes first, Hits@10 of those where it is among "
        "the first ten. MRR is the mean of 1 / rank."
    )
    run("evaluate", str(folder / "model"), "--rules-row", "--force")
    paragraph(verdict(json.loads((folder / "model" / "result.json").read_text(encoding="utf-8"))))


def verdict(result: dict[str, Any]) -> str:
    """The result in a sentence or two."""
    model, rules = result["metrics"], result["rules"][0]["metrics"]

    figures = [f"{100 * metrics[name]:.0f}" for metrics in (model, rules) for name in ("hits@1", "hits@10")]
    text = (
        "Of 100 such queries the model has the right answer first in {} and among its first ten in {}; the rules "
        "alone in {} and {}."
    ).format(*figures)
    if model["mrr"] < rules["mrr"]:
        text += " On these newcomers the rules alone do better."
    return text


def the_newcomer(folder: Path) -> None:
    """A newcomer, added to the trained model."""
    chapter("6. A newcomer arrives")
    paragraph(f"{NEWCOMER} is in no training data. All known facts of it:")
    file, model = folder / "newcomer.tsv", str(folder / "model")
    file.write_text("".join("\t".join(fact) + "\n" for fact in FACTS), encoding="utf-8")
    for fact in FACTS:
        print(f"    {'  '.join(fact)}")
    paragraph("What else is likely true? Nothing is trained again; this takes milliseconds once the model is loaded.")
    run("suggest", model, "--facts", str(file), "--top", "6")
    paragraph("One answer with all its reasons. `x`, `y` and `z` in a rule stand for any entity.")
    run("explain", model, "--facts", str(file), "--relation", "in_region", "--top", "1")
    paragraph("The same as a picture: known facts solid, what rules infer dashed, the likely answers in red.")
    run("draw", model, NEWCOMER, "--facts", str(file), "--out", str(folder / "newcomer.png"), "--force")


def chapter(title: str) -> None:
    """A heading."""
    print(f"\n{title}\n{'=' * len(title)}", flush=True)


def paragraph(text: str) -> None:
    """A paragraph."""
    print(f"\n{fill(text, 100)}\n", flush=True)


def run(*words: str) -> None:
    """A command as one would type it, and what it prints, but for how long it took."""
    print(f"$ newcomer {' '.join(words)}", flush=True)
    printed = io.StringIO()
    with redirect_stdout(printed):
        app(list(words), standalone_mode=False)
    for line in printed.getvalue().splitlines():
        print(DURATION.sub("", line.rstrip()))


if __name__ == "__main__":
    main()
