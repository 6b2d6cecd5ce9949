"""Write docs/splits.md: what our splitter makes of FB15K, beside the counts the paper prints.

Usage: NEWCOMER_DATA=... python scripts/split_summary.py
"""

from pathlib import Path

from newcomer.data import SplitRule, load_dataset, split_graph
from newcomer.data.describe import neighbours_per_predicted_fact
from newcomer.graph import InductiveDataset

# O, AUX, newcomers of test, valid, test, neighbours per predicted fact (Table 3 of the paper).
PAPER = {
    ("subject", 5): (188_238, 235_746, 1_465, 19_454, 1_834, 85.54),
    ("object", 5): (170_672, 254_454, 1_344, 17_712, 1_896, 88.66),
    ("subject", 10): (108_854, 249_798, 2_102, 11_339, 2_811, 52.33),
    ("object", 10): (99_783, 261_341, 1_947, 10_190, 2_987, 53.63),
    ("subject", 15): (71_407, 228_484, 2_358, 7_310, 3_250, 37.14),
    ("object", 15): (67_651, 243_316, 2_228, 6_878, 3_703, 39.00),
    ("subject", 20): (49_456, 205_242, 2_571, 5_048, 3_586, 29.19),
    ("object", 20): (46_982, 222_200, 2_388, 4_843, 4_132, 30.92),
    ("subject", 25): (37_986, 179_656, 2_704, 3_908, 3_889, 22.53),
    ("object", 25): (34_126, 195_627, 2_470, 3_498, 4_283, 24.92),
}
SEED = 0
INTRODUCTION = f"""# Splits of FB15K

Made by `scripts/split_summary.py`; not typed by hand. Ours: `newcomer split fb15k OUT --unseen SIDE --rate R --seed
{SEED}` (all splits draw from FB15K's own test file). Paper: the counts it prints for the published splits, which were
drawn with another seed, so the two should be close, not equal.

Given the newcomers of a published split, the same code reproduces its train, aux and valid *exactly*, as sets; the
tests do so for Subject-5, -10 and Object-5, -10. Newcomers are then all entities of FB15K that are not in the published
train: a candidate all of whose neighbours are candidates too occurs in no published file, but its triples were removed.

| split | | train | aux | newcomers in test | valid | test | neighbours per predicted fact |
|---|---|---|---|---|---|---|---|
"""


def figures(split: InductiveDataset) -> tuple[float, ...]:
    """The six figures of the paper's table."""
    return (
        len(split.observed),
        len(split.auxiliary),
        len(split.test_newcomers),
        len(split.valid),
        len(split.test),
        neighbours_per_predicted_fact(split, split.auxiliary.degrees) or 0.0,
    )


def row(name: str, who: str, values: tuple[float, ...]) -> str:
    """One row of the table."""
    cells = [f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" for value in values]
    return f"| {name} | {who} | {' | '.join(cells)} |\n"


def main() -> None:
    """Split, count, write."""
    graph = load_dataset("fb15k")
    text = INTRODUCTION
    for (side, rate), paper in PAPER.items():
        split = split_graph(graph, SplitRule(side, rate=rate, seed=SEED))
        text += row(f"{side.capitalize()}-{rate}", "ours", figures(split)) + row("", "paper", paper)
    Path(__file__).parent.parent.joinpath("docs", "splits.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
