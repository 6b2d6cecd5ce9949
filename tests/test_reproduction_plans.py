"""Plans as data: what cells there are, what they are called, and that the paper's figures fit them."""

from itertools import pairwise

import pytest

from conftest import complaint
from newcomer.config import PROTOCOLS
from newcomer.data.catalogue import entry, names
from newcomer.errors import OptionError
from newcomer.evaluation.measure import TASKS
from newcomer.reproduction.plans import PLANS, Cell, cells_of, chosen_cells, load_plan, read_toml
from newcomer.reproduction.tables import METRIC_NAMES

MODELS = {"vn", "mean", "lstm", "lan", "rules", "default"}
SIZES = {
    "suggestions": 5,
    "statistics": 26,
    "classification": 54,
    "link-prediction": 72,
    "ablation": 5,
    "decoders": 9,
    "unseen-share": 40,
    "other-graphs": 18,
}


def cells(what: str, **options: object) -> list[Cell]:
    return chosen_cells(load_plan(what), **options)  # type: ignore[arg-type]


def by_name(what: str) -> dict[str, Cell]:
    return {cell.name: cell for cell in cells_of(load_plan(what))}


@pytest.mark.parametrize("what", PLANS)
def test_a_plan_holds_together(what):
    plan = load_plan(what)
    found = cells_of(plan)
    assert len({cell.name for cell in found}) == len(found) == SIZES[what]
    assert {label for run in plan.runs for label in run.models} == set(plan.models)
    assert plan.task in (*TASKS, "statistics") and set(plan.metrics) <= set(METRIC_NAMES)
    assert plan.layout in ("metrics", "datasets") and plan.title and plan.about.strip()
    assert {cell.model for cell in found} <= MODELS and {cell.protocol for cell in found} <= set(PROTOCOLS)
    assert {name for run in plan.runs for name in run.datasets} <= {*names(), *read_toml("datasets.toml")}
    for cell in found:
        assert (cell.config is None) != (cell.mining is None)
        assert cell.config is None or (cell.config.protocol, cell.config.seed) == (cell.protocol, cell.seed)


def test_cells_of_link_prediction_are_those_of_the_table():
    found = by_name("link-prediction")
    for side in ("subject", "object"):
        trained = [
            f"{model}-inductive-{seed}" for model in ("mean", "lstm", "lan", "vn", "default") for seed in range(3)
        ]
        for rest in (*trained, "vn-transductive-transductive-0", "rules-inductive-0", "rules-all-inductive-0"):
            assert f"link-prediction-fb15k-{side}-10-{rest}" in found, rest
    cell = found["link-prediction-fb15k-subject-10-rules-all-inductive-0"]
    assert (cell.model, cell.label) == ("rules", "rules-all")
    cell = found["link-prediction-fb15k-object-10-vn-transductive-transductive-0"]
    assert (cell.model, cell.config.preset) == ("vn", "paper-fb15k")
    assert (cell.config.protocol, cell.config.training.newcomer_share) == ("transductive", 0.5)


def test_the_rows_of_the_ablation_add_one_component_each():
    found = [cell.config for cell in cells_of(load_plan("ablation"))]
    parts = [(config.model.labels, config.rules.paths, config.model.query_aware) for config in found]
    assert parts[0] == ("none", False, False) and parts[-1] == ("soft", True, True)
    assert all(sum(a != b for a, b in zip(one, other, strict=True)) == 1 for one, other in pairwise(parts))


def test_the_same_model_in_several_tables_has_the_same_settings():
    same = [
        by_name("link-prediction")["link-prediction-fb15k-subject-10-vn-inductive-0"],
        by_name("ablation")["ablation-fb15k-subject-10-vn-full-inductive-0"],
        by_name("decoders")["decoders-fb15k-subject-10-vn-distmult-inductive-0"],
        by_name("unseen-share")["unseen-share-fb15k-subject-10-vn-inductive-0"],
    ]
    assert len({cell.settings_hash for cell in same}) == 1
    other = by_name("decoders")["decoders-fb15k-subject-10-vn-complex-inductive-0"]
    assert other.settings_hash != same[0].settings_hash and other.overrides == ("model.decoder=complex",)


def test_the_settings_of_statistics_are_those_of_rules():
    plain, other = (cells("statistics", only=["fb15k-rules"], changes=changes)[0] for changes in ([], ["model.dim=8"]))
    assert plain.settings_hash == other.settings_hash
    changed = cells("statistics", only=["fb15k-rules"], changes=["rules.walks=8"])[0]
    assert changed.settings_hash != plain.settings_hash and changed.overrides == ("rules.walks=8",)


def test_seeds_are_of_trained_models():
    found = cells("link-prediction", seeds=2, only=["fb15k-subject-10"])
    counts = {cell.label: sum(other.label == cell.label for other in found) for cell in found}
    trained = ("mean", "lstm", "lan", "vn", "vn-shallow", "vn-shifted")
    trained += ("vn-transductive", "vn-shallow-transductive", "vn-shifted-transductive")
    assert counts == {
        "rules": 1,
        "rules-all": 1,
        **dict.fromkeys(trained, 2),
        "default-cpu": 2,
        "default": 4,
    }  # under two protocols
    assert {cell.seed for cell in cells("statistics", seeds=3)} == {0}


def test_a_protocol_for_all_keeps_what_the_plan_says_of_it():
    found = cells("link-prediction", protocol="transductive", only=["fb15k-object-10"])
    assert {cell.protocol for cell in found} == {"transductive"}
    assert [cell.seed for cell in found if cell.label == "vn-transductive"] == [0]
    assert [cell.seed for cell in found if cell.label == "mean"] == [0, 1, 2]
    assert "rules" not in {cell.label for cell in found}
    assert all(cell.config.protocol == "transductive" for cell in found)
    refreshed = cells("link-prediction", protocol="refreshed", only=["subject-10-rules-refreshed"])
    assert [cell.settings["protocol"] for cell in refreshed] == ["refreshed"]


def test_only_takes_parts_of_names():
    assert len(cells("ablation", only=["vn-logic"])) == 2
    assert [cell.label for cell in cells("ablation", only=["hard", "vn-full"])] == ["vn-hard", "vn-full"]
    assert len(cells("link-prediction", only=["fb15k-subject-10-vn-*-0"])) == 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"protocol": "transductiv"}, "did you mean 'transductive'?"),
        ({"only": ["nothing"]}, "no cell of ablation is of 'nothing'; see their names with: --dry-run"),
        ({"changes": ["training.epoch=1"]}, "did you mean 'training.epochs'?"),
        ({"changes": ["seed=1"]}, "pass --seeds instead"),
        ({"changes": ["protocol=refreshed"]}, "pass --protocol instead"),
        ({"changes": ["model.encoder=mean"]}, "the plan names it"),
    ],
)
def test_wrong_options_are_said(options, words):
    assert words in str(complaint(cells, "ablation", **options))


def test_an_unknown_table_is_answered_with_the_nearest():
    assert "did you mean 'ablation'?" in str(complaint(load_plan, "ablatoin"))


def test_every_figure_of_the_paper_belongs_to_a_row_of_a_plan():
    for what, datasets in read_toml("paper.toml").items():
        plan = load_plan(what)
        rows = {(cell.dataset, cell.label) for cell in cells_of(plan)}
        for dataset, models in datasets.items():
            for label, figures in models.items():
                assert (dataset, label) in rows and set(figures) <= set(plan.metrics), (what, dataset, label)


def test_the_papers_tables_agree_with_each_other():
    paper = read_toml("paper.toml")
    whole = paper["link-prediction"]["fb15k-subject-10"]
    assert whole["vn"] == paper["ablation"]["fb15k-subject-10"]["vn-full"]
    alike = {"vn": "vn-distmult", "mean": "mean-transe", "lan": "lan-transe"}
    for model, label in alike.items():
        assert paper["decoders"]["fb15k-subject-10"][label].items() <= whole[model].items()
    for dataset, models in paper["unseen-share"].items():
        for model, figures in models.items():
            assert figures.items() <= paper["link-prediction"][dataset][model].items()
    assert [len(models) for models in paper["classification"].values()] == [5] * 9
    assert all(models["vn-plain"] == models["vn"] for models in paper["classification"].values())
    for models in (*paper["classification"].values(), *paper["link-prediction"].values()):
        best = models.get("vn") or models["vn-yago37"]
        for metric in best:
            values = [figures[metric] for figures in models.values()]
            assert best[metric] == (min(values) if metric == "mr" else max(values))


def test_the_papers_counts_are_those_of_the_published_files():
    for dataset, models in read_toml("paper.toml")["statistics"].items():
        if dataset not in names():
            continue
        found = entry(dataset)
        for role, count in found.counts.items():
            assert models["rules"][role] == count, (dataset, role)
        if found.newcomers is not None:
            assert models["rules"]["newcomers"] == found.newcomers["test"]


@pytest.mark.parametrize(
    ("what", "dataset", "label", "figures"),
    [
        ("link-prediction", "fb15k-subject-10", "lan", [263, 39.4, 56.6, 44.6, 30.2]),
        ("link-prediction", "fb15k-object-10", "vn", [212, 42.3, 62.7, 44.6, 28.2]),
        ("ablation", "fb15k-subject-10", "vn-hard", [237, 40.6, 64.2, 46.5, 30.3]),
        ("decoders", "fb15k-subject-10", "vn-transe", [43.5, 66.7, 49.4, 31.6]),
        ("classification", "wn11-both-5000", "vn", [73.1]),
        ("classification", "wn11-object-3000", "lstm", [71.4]),
    ],
)
def test_figures_of_the_paper(what, dataset, label, figures):
    assert list(read_toml("paper.toml")[what][dataset][label].values()) == figures


@pytest.mark.parametrize("change", ["model.propagation=false", "model.encoder=mean", "seed=1"])
def test_what_a_cell_is_called_after_cannot_be_changed(change):
    name = change.partition("=")[0]
    with pytest.raises(OptionError, match=rf"^{name} cannot be set for a plan's cells; "):
        cells("link-prediction", changes=[change])
