"""A trained model as a folder: it comes back as it was, or one sentence says which file is to blame.

Covers newcomer.models.bundle.folder, newcomer.models.bundle.manifest, newcomer.models.bundle.tables,
newcomer.models.bundle.rules and newcomer.models.bundle.rules.
"""

import hashlib
import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from conftest import complaint, make_dataset
from newcomer import __version__
from newcomer.config import config_hash, load_preset, with_overrides
from newcomer.errors import InputError, OutputError
from newcomer.graph import Graph, Overlay, TripleArray, Vocabulary
from newcomer.models.bundle import (
    Bundle,
    Thresholds,
    dataset_hash,
    folder,
    manifest,
    read_bundle,
    tables,
    write_bundle,
)
from newcomer.models.bundle.manifest import KNOWN, MANIFEST, REQUIRED
from newcomer.rules.mining.symmetric_paths import PathLimits
from newcomer.rules.rule import COLUMNS, Kind, Rule, RuleSet
from newcomer.rules.virtual_neighbors import LOGIC, PATH, Grounder, NeighborLimits, VirtualNeighbors, virtual_neighbors

ODD = ["", "x", "_", " two  words ", "a\tb", "line\nfeed", "\r", "\0", '"q"', "\\", "é", "e\u0301", "\u2028", "🜚", "=>"]
RELATIONS = ["knows", "likes, (much)", "né\tà\n"]
HASH = "0" * 64


def make_rules() -> RuleSet:
    counted = {"support": 12, "body_size": 15, "pca_body_size": 13, "head_size": 40}
    rules = [
        Rule(Kind.ONE, 0, 1, **counted),
        Rule(Kind.TWO, 2, 1, 5, support=3, body_size=9),
        Rule(Kind.CONSTANT, 4, 0, head_constant=4, body_constant=5, **counted),
        Rule(Kind.EXISTS, 1, 3, head_constant=1),
    ]
    return RuleSet.of(rules, len(RELATIONS))


def make_parts(**changes: Any) -> Bundle:
    entities, relations = Vocabulary(ODD), Vocabulary(RELATIONS)
    rng = np.random.default_rng(3)
    rows = np.stack([rng.integers(0, n, 40) for n in (len(ODD), len(RELATIONS), len(ODD))], axis=1)
    observed = Graph.build(entities, relations, TripleArray.of(rows[:30]))
    rules = make_rules()
    auxiliary = Graph.build(entities, relations, TripleArray.of(rows[30:]))
    parts = Bundle(
        config=with_overrides(load_preset("paper-wn11"), ["seed=7", "protocol=refreshed", "training.lr=1e-7"]),
        observed=observed,
        rules=rules,
        weights={
            "entities": rng.normal(size=(len(ODD), 4)).astype(np.float32),
            "bias": np.array(0.5, dtype=np.float64),
            "nothing": np.empty((0, 3), dtype=np.float16),
            "turned.é": np.arange(6, dtype=np.int64).reshape(2, 3).T,
        },
        dataset_name="somewhere \udce9",
        dataset_hash=HASH,
        metrics={"test": {"mrr": np.float64(0.25), "hits": [0.1, np.nan], "queries": np.int64(7)}, "note": "ü"},
        thresholds=Thresholds(0.5, {"knows": -1.25, "né\tà\n": 1e300}),
        auxiliary=auxiliary,
        neighbors=inferred(rules, observed),
        newcomer_neighbors=inferred(rules, auxiliary),
    )
    return replace(parts, **changes)


def inferred(rules: RuleSet, facts: Graph) -> VirtualNeighbors:
    """By the first rule and by paths, in the rows of all rules."""
    limits, paths = NeighborLimits(0.0, min_support=1), PathLimits(walks=50, min_pairs=1, min_confidence=0.1)
    everyone = np.arange(len(ODD), dtype=np.int32)
    found = virtual_neighbors(Grounder(rules.where(np.array([0])), limits), Overlay.of(facts), everyone, paths)
    return replace(found, rules=rules)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def reseal(folder: Path, change: Callable[[dict[str, Any]], Any] = lambda _: None) -> None:
    """Make the manifest true again after a file was exchanged, as someone who means harm would."""
    content = json.loads((folder / MANIFEST).read_text())
    content.pop("checksum")
    for name in content["files"]:
        data = (folder / name).read_bytes()
        content["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    change(content)
    (folder / MANIFEST).write_bytes(manifest.sealed(content))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "model"
    write_bundle(folder, make_parts())
    return folder


@pytest.fixture
def model(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(whole, tmp_path / "model"))


def refused(folder: Path, name: str) -> str:
    """The sentence about the file of this name."""
    error = complaint(read_bundle, folder)
    assert isinstance(error, InputError)
    assert Path(error.path) == folder / name
    return str(error)


def same_graph(one: Graph, other: Graph) -> bool:
    vocabularies = one.entities == other.entities and one.relations == other.relations
    return vocabularies and np.array_equal(one.triples.rows, other.triples.rows)


def same_neighbors(one: VirtualNeighbors, other: VirtualNeighbors) -> bool:
    """In every number."""
    names = ("confidence", "kinds", "offsets", "grounding_source", "grounding_rule", "grounding_strength", "premises")
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    names = ("types", "entities", "premises", "conclusions", "common", "pairs")
    pairs += [(getattr(one.path_rules, name), getattr(other.path_rules, name)) for name in names]
    pairs.append((one.triples.rows, other.triples.rows))
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


def test_everything_comes_back(whole: Path) -> None:
    parts, back = make_parts(), read_bundle(whole)
    assert set(bytes_of(whole)) == {*KNOWN, MANIFEST}
    assert back.config == parts.config
    assert list(back.observed.entities) == ODD and list(back.observed.relations) == RELATIONS
    assert same_graph(back.observed, parts.observed)
    assert back.auxiliary is not None and parts.auxiliary is not None and same_graph(back.auxiliary, parts.auxiliary)
    assert all(np.array_equal(getattr(back.rules, c), getattr(parts.rules, c)) for c in COLUMNS)
    assert list(back.weights) == sorted(parts.weights)
    for name, array in parts.weights.items():
        assert back.weights[name].dtype == array.dtype and back.weights[name].shape == array.shape
        assert np.array_equal(back.weights[name], array)
    assert parts.neighbors is not None and set(parts.neighbors.grounding_source) == {LOGIC, PATH}
    for mine, other in ((parts.neighbors, back.neighbors), (parts.newcomer_neighbors, back.newcomer_neighbors)):
        assert mine is not None and other is not None and same_neighbors(mine, other)
    assert back.thresholds == parts.thresholds
    assert back.metrics == {"test": {"mrr": 0.25, "hits": [0.1, None], "queries": 7}, "note": "ü"}


def test_the_manifest_says_how_the_model_came_to_be(whole: Path) -> None:
    content, config = json.loads((whole / MANIFEST).read_text()), make_parts().config
    assert (content["newcomer"], content["seed"], content["protocol"]) == (__version__, 7, "refreshed")
    assert content["dataset"] == {"name": "somewhere \udce9", "sha256": HASH}
    assert content["config_sha256"] == config_hash(config)
    assert set(content["versions"]) == {"python", "numpy", "torch", "pyarrow", "safetensors"}
    assert content["versions"]["numpy"] == np.__version__
    for name, data in bytes_of(whole).items():
        if name != MANIFEST:
            assert content["files"][name]["sha256"] == hashlib.sha256(data).hexdigest()


def test_the_smallest_model_comes_back(tmp_path: Path) -> None:
    empty = Graph.build(Vocabulary([]), Vocabulary([]), TripleArray.empty())
    write_bundle(tmp_path / "m", Bundle(load_preset("mean"), empty, RuleSet.empty(0), {}, "none", HASH))
    back = read_bundle(tmp_path / "m")
    assert (len(back.observed), len(back.rules), back.weights, back.metrics) == (0, 0, {}, {})
    assert back.thresholds is None and back.auxiliary is None


@given(names=st.lists(st.text(), unique=True, min_size=1), relations=st.lists(st.text(), unique=True, min_size=1))
def test_any_name_survives(tmp_path_factory, names, relations) -> None:
    folder = tmp_path_factory.mktemp("names") / "m"
    graph = Graph.build(Vocabulary(names), Vocabulary(relations), TripleArray.of([(0, 0, len(names) - 1)]))
    last = Rule(Kind.EXISTS, len(relations) - 1, 0, head_constant=len(names) - 1)
    rules = RuleSet.of([last], len(relations))
    limits = Thresholds(0.0, dict.fromkeys(relations, 1.5))
    write_bundle(folder, Bundle(load_preset("default"), graph, rules, {}, "d", HASH, thresholds=limits))
    back = read_bundle(folder)
    assert list(back.observed.entities) == names and list(back.observed.relations) == relations
    assert list(back.rules) == [last]
    assert back.thresholds == limits


def test_the_same_model_gives_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    parts = make_parts()
    turned = replace(
        parts, weights=dict(reversed(parts.weights.items())), metrics=dict(reversed(parts.metrics.items()))
    )
    write_bundle(tmp_path / "again", turned)
    assert bytes_of(tmp_path / "again") == bytes_of(whole)


def test_a_model_may_be_moved(model: Path, tmp_path: Path) -> None:
    moved = tmp_path / "öther \udce9 place"
    model.rename(moved)
    assert read_bundle(moved).config == make_parts().config


@pytest.mark.parametrize("name", KNOWN)
def test_a_damaged_file_is_named(model: Path, name: str) -> None:
    path = model / name
    content = path.read_bytes()
    for place in {0, len(content) // 2, len(content) - 1}:
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert "was altered after it was written" in refused(model, name)
    for cut in (content[:-1], content[: len(content) // 2], b"", content + b"\n"):
        path.write_bytes(cut)
        assert f"has {len(cut):,} bytes where {len(content):,} were written" in refused(model, name)
    path.unlink()
    assert "is missing" in refused(model, name)
    path.mkdir()
    assert "is missing" in refused(model, name)


def test_every_byte_of_the_manifest_counts(model: Path) -> None:
    path = model / MANIFEST
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        refused(model, MANIFEST)
    for cut in range(0, len(content), 61):
        path.write_bytes(content[:cut])
        refused(model, MANIFEST)
    path.write_bytes(content.replace(b"\n", b"\r\n"))
    assert "was altered" in refused(model, MANIFEST)
    path.unlink()
    assert "is missing; give the folder of a trained model" in refused(model, MANIFEST)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\x00\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "holds [] where a table is expected"),
        (b"3", "holds 3 where a table is expected"),
        (b"{}", "has the format None where 'newcomer model' is expected; give the folder of a trained model"),
        (b'{"format": "newcomer dataset"}', "has the format 'newcomer dataset'"),
        (b'{"format": "newcomer model"}', "has the format version None, which is none"),
        (b'{"format": "newcomer model", "format_version": true}', "has the format version True"),
        (b'{"format": "newcomer model", "format_version": 4}', "was altered after it was written"),
        (b'{"format": "newcomer model", "format_version": NaN}', "NaN is no number in JSON"),
    ],
    ids=["bytes", "deep", "list", "number", "empty", "dataset", "version", "bool", "bare", "nan"],
)
def test_a_manifest_that_is_none_is_named(model: Path, content: bytes, problem: str) -> None:
    (model / MANIFEST).write_bytes(content)
    assert problem in refused(model, MANIFEST)


def test_a_newer_format_says_what_to_do(model: Path) -> None:
    reseal(model, lambda content: content.update(format_version=5, shape="new"))
    assert refused(model, MANIFEST).endswith("reads 4; upgrade with: pip install --upgrade newcomer")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_older_format_must_be_trained_again(model: Path, version: int) -> None:
    reseal(model, lambda content: content.update(format_version=version))
    text = refused(model, MANIFEST)
    assert text.endswith(f"has format version {version}, but newcomer {__version__} reads 4; train the model again")


@pytest.mark.parametrize("wrong", [None, 3, True, "x", [], {}, {"x": 1}, 1.5], ids=repr)
def test_wrong_types_in_a_manifest_are_named(model: Path, wrong: Any) -> None:
    original = json.loads((model / MANIFEST).read_text())
    for key, value in original.items():
        fitting = (wrong in ("x", 3) and type(value) is type(wrong)) or (key, wrong) == ("versions", {})
        if fitting or key in ("format", "format_version", "checksum"):
            continue
        reseal(model, lambda content, key=key: content.update({key: wrong}))
        refused(model, MANIFEST)
        (model / MANIFEST).write_bytes(tables.json_bytes(original))
    for inside in ({"bytes": wrong, "sha256": HASH}, {"bytes": 1, "sha256": wrong}, wrong):
        if inside != {"bytes": 3, "sha256": HASH}:
            reseal(model, lambda content, inside=inside: content["files"].update({"rules.parquet": inside}))
            refused(model, MANIFEST)
            (model / MANIFEST).write_bytes(tables.json_bytes(original))


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "seen/../../secret", "weights.pkl", "", "rules.tsv\0"])
def test_no_name_leads_out_of_the_folder(model: Path, name: str) -> None:
    (model.parent / "secret").write_bytes(b"")
    stamp = {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}
    reseal(model, lambda content: content["files"].update({name: stamp}))
    assert f"lists {name!r}, which is no file of a trained model" in refused(model, MANIFEST)


@pytest.mark.parametrize("name", REQUIRED)
def test_a_file_that_is_needed_must_be_listed(model: Path, name: str) -> None:
    reseal(model, lambda content: content["files"].pop(name))
    assert f"does not list {name}" in refused(model, MANIFEST)


@pytest.mark.parametrize("name", [name for name in KNOWN if "/" in name])
def test_virtual_neighbours_are_there_whole_or_not_at_all(model: Path, name: str) -> None:
    reseal(model, lambda content: content["files"].pop(name))
    assert f"does not list {name}" in refused(model, MANIFEST)


@pytest.mark.parametrize("name", ["notes.txt", "seen/more.tsv", "newcomers/neighbors.pkl", "seen.pkl"])
def test_a_file_that_does_not_belong_is_named(model: Path, name: str) -> None:
    (model / name).write_text("hello")
    assert "is no file of this model; move it elsewhere" in refused(model, name)


def test_what_desktops_hide_in_folders_does_no_harm(model: Path) -> None:
    (model / ".DS_Store").write_bytes(b"\0")
    assert len(read_bundle(model).rules) == 4


class Trap:
    """Leaves a file behind if someone unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def parquet(columns: dict[str, Any]) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table(columns), path)


def spoilt(column: str, value: int) -> Callable[[Path], None]:
    """The same table with another first number in a column."""

    def write(path: Path) -> None:
        columns = pq.read_table(path).to_pydict()
        columns[column][0] = value
        pq.write_table(pa.table({name: ids(*values) for name, values in columns.items() if name != "path"}), path)
        if "path" in columns:
            table = pq.read_table(path).add_column(0, "path", pa.array(columns["path"]))
            pq.write_table(table, path)

    return write


def ruined(column: str, row: int, value: int, **more: int) -> Callable[[Path], None]:
    """The table of rules with other numbers in a row."""

    def write(path: Path) -> None:
        table = pq.read_table(path)
        columns = {name: table.column(name).to_numpy().copy() for name in table.column_names}
        for name, number in {column: value, **more}.items():
            columns[name][row] = number
        pq.write_table(pa.table(columns), path)

    return write


def ids(*values: int) -> pa.Array:
    return pa.array(values, type=pa.int32())


FOREIGN: list[tuple[str, Callable[[Path], Any] | bytes, str]] = [
    ("config.toml", b"lr = ", "is not TOML"),
    ("config.toml", b"\xff", "is not TOML"),
    ("config.toml", b"a = " + b"[" * 20_000, "is not TOML"),
    ("config.toml", b"[training]\nlearning_rate = 1", "did you mean 'training.lr'?"),
    ("config.toml", b"[model]\ndim = 'big'", "model.dim is 'big', but must be a whole number"),
    ("entities.parquet", b"PAR1", "is not a Parquet file"),
    ("entities.parquet", b"", "is not a Parquet file"),
    ("entities.parquet", parquet({"name": [1, 2]}), "has the columns 'name int64' where 'name string' are expected"),
    ("entities.parquet", parquet({"names": ODD}), "has the columns 'names string'"),
    ("entities.parquet", parquet({"name": [*ODD[:-1], None]}), "has empty cells"),
    ("relations.parquet", parquet({"name": ["a", "b", "a"]}), "3 names holds only 2 distinct ones"),
    ("relations.parquet", parquet({"name": pa.array([b"a", b"\xff"]).view(pa.string())}), "is not a Parquet file"),
    (
        "observed.parquet",
        parquet({"head": ids(0), "relation": ids(3), "tail": ids(0)}),
        "relation id 3 is outside 0..2",
    ),
    ("observed.parquet", parquet({"head": ids(-1), "relation": ids(0), "tail": ids(0)}), "head id -1 is outside"),
    (
        "auxiliary.parquet",
        parquet({"head": ids(0), "relation": ids(0), "tail": ids(99)}),
        "tail id 99 is outside 0..14",
    ),
    ("auxiliary.parquet", parquet({"head": [0], "relation": [0], "tail": [0]}), "head int64"),
    ("rules.parquet", b"rule\n", "is not a Parquet file"),
    ("rules.parquet", parquet({"kinds": ids(1)}), "has the columns 'kinds int32' where 'kinds int32, heads int32"),
    ("rules.parquet", ruined("kinds", 0, 7), "has no rule in row 1: its kind is none that is known"),
    ("rules.parquet", ruined("heads", 1, 6), "has no rule in row 2: its head is no relation"),
    ("rules.parquet", ruined("heads", 0, 3), "has no rule in row 1: its head is no relation"),
    ("rules.parquet", ruined("body1", 3, -1), "has no rule in row 4: its body1 is no relation"),
    ("rules.parquet", ruined("body2", 1, -1), "has no rule in row 2: its body2 is no relation"),
    ("rules.parquet", ruined("body2", 0, 1), "has no rule in row 1: its body2 is no relation"),
    ("rules.parquet", ruined("body3", 1, 2), "has no rule in row 2: its body3 is no relation"),
    ("rules.parquet", ruined("kinds", 1, 3, body1=5), "has no rule in row 2: its body has the same atom twice"),
    ("rules.parquet", ruined("head_constants", 2, 15), "has no rule in row 3: its head_constants is no entity"),
    ("rules.parquet", ruined("body_constants", 3, 0), "has no rule in row 4: its body_constants is no entity"),
    ("rules.parquet", ruined("support", 3, -2), "has no rule in row 4: its support is no count"),
    ("seen/neighbors.parquet", b"", "is not a Parquet file"),
    ("seen/neighbors.parquet", spoilt("head", 15), "holds the number 15, which is not from 0 to 14"),
    ("seen/neighbors.parquet", spoilt("relation", -1), "holds the number -1, which is not from 0 to 2"),
    ("seen/neighbors.parquet", spoilt("groundings", 1_000), "groundings where there are"),
    ("newcomers/neighbors.parquet", spoilt("groundings", 0), "groundings where there are"),
    ("seen/groundings.parquet", spoilt("rule", 4_000), "holds the number 4000"),
    ("newcomers/groundings.parquet", spoilt("tail_3", 15), "holds the number 15, which is not from -1 to 14"),
    ("seen/groundings.parquet", parquet({"path": [True]}), "has the columns 'path bool'"),
    ("seen/paths.parquet", spoilt("conclusion_1", 6), "holds the number 6, which is not from -1 to 5"),
    ("seen/paths.parquet", spoilt("pairs", 0), "holds the number 0, which is not from 1"),
    ("thresholds.json", b"[]", "where a table is expected"),
    ("thresholds.json", b"{}", "does not hold 'overall' and 'relations'"),
    ("thresholds.json", b'{"overall": 1, "relations": []}', "does not hold"),
    ("thresholds.json", b'{"overall": 1, "relations": {"hates": 1}}', "names the relation 'hates'"),
    ("thresholds.json", b'{"overall": "1", "relations": {}}', "holds the threshold '1', which is no number"),
    ("thresholds.json", b'{"overall": 1, "relations": {"knows": true}}', "holds the threshold True"),
    ("thresholds.json", b'{"overall": 1%s, "relations": {}}' % (b"0" * 400), "holds the threshold 1000"),
    ("metrics.json", b'{"mrr": NaN}', "is not JSON (NaN is no number in JSON)"),
    ("metrics.json", b"{", "is not JSON"),
    ("weights.safetensors", b"", "is not a safetensors file"),
    ("weights.safetensors", b"\xff" * 64, "is not a safetensors file"),
    ("weights.safetensors", b"\x02\0\0\0\0\0\0\0{}more", "is not a safetensors file"),
]


@pytest.mark.parametrize(
    ("name", "content", "problem"), FOREIGN, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(FOREIGN)]
)
def test_foreign_content_under_a_true_manifest_is_named(model: Path, name: str, content: Any, problem: str) -> None:
    if isinstance(content, bytes):
        (model / name).write_bytes(content)
    else:
        content(model / name)
    reseal(model)
    assert problem in refused(model, name)


@pytest.mark.parametrize("name", KNOWN)
def test_nothing_is_ever_unpickled(model: Path, tmp_path: Path, name: str) -> None:
    (model / name).write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    reseal(model)
    refused(model, name)
    assert not (tmp_path / "sprung").exists()


def test_the_manifest_and_the_settings_must_agree(model: Path) -> None:
    reseal(model, lambda content: content.update(seed=8))
    assert "states another seed or protocol than config.toml" in refused(model, MANIFEST)


def test_weights_of_types_numpy_lacks_are_refused(model: Path) -> None:
    save_file({"a": np.zeros(4, dtype=np.uint8)}, model / "weights.safetensors")
    data = (model / "weights.safetensors").read_bytes().replace(b'"U8"', b'"F9"')
    (model / "weights.safetensors").write_bytes(data)
    reseal(model)
    assert "is not a safetensors file" in refused(model, "weights.safetensors")


@pytest.mark.parametrize("number", [np.nan, np.inf, -1e38])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_weights_that_no_training_gives_are_refused(model: Path, number: float, kind: type) -> None:
    if kind is np.float16 and np.isfinite(number):
        number = np.inf
    save_file({"a": np.ones(3, kind), "b": np.array([0, number], kind)}, model / "weights.safetensors")
    reseal(model)
    assert "has numbers in 'b' that no training gives" in refused(model, "weights.safetensors")


def test_what_is_no_folder_is_named(tmp_path: Path, put: Callable[[str, str], Path]) -> None:
    assert "does not exist; give the folder" in str(complaint(read_bundle, tmp_path / "nowhere"))
    assert "is not a folder" in str(complaint(read_bundle, put("file", "")))
    assert f"{tmp_path / MANIFEST}: is missing" in str(complaint(read_bundle, tmp_path))


def test_a_model_is_replaced_only_when_asked(model: Path) -> None:
    before = bytes_of(model)
    other = make_parts(metrics={"mrr": 1.0}, neighbors=None, newcomer_neighbors=None, thresholds=None)
    assert "exists already" in str(complaint(write_bundle, model, other))
    assert bytes_of(model) == before
    write_bundle(model, other, force=True)
    assert read_bundle(model).metrics == {"mrr": 1.0}
    assert not (model / "seen").exists() and not (model / "newcomers").exists()
    assert [path.name for path in model.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("manifest", [None, b"{}", b"\xff"], ids=["none", "another", "garbage"])
def test_force_replaces_models_only(tmp_path: Path, manifest: bytes | None) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    if manifest is not None:
        (tmp_path / "thesis" / MANIFEST).write_bytes(manifest)
    error = complaint(write_bundle, tmp_path / "thesis", make_parts(), force=True)
    assert isinstance(error, OutputError) and "holds something that is no trained model" in str(error)
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "years of work"


STEPS = [
    "write_table",
    "_write_triples",
    "write_rule_numbers",
    "write_virtual",
    "write_weights",
    "manifest_bytes",
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("stop", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=["killed", "full"])
def test_a_write_that_stops_leaves_nothing(model: Path, monkeypatch, step: str, stop: BaseException) -> None:
    def stopping(*_: Any, **__: Any) -> None:
        raise stop

    before = bytes_of(model)
    monkeypatch.setattr(folder, step, stopping)
    for place, force in ((model.parent / "new", False), (model, True)):
        with pytest.raises(KeyboardInterrupt if isinstance(stop, KeyboardInterrupt) else OutputError):
            write_bundle(place, make_parts(), force=force)
    monkeypatch.undo()
    assert [path.name for path in model.parent.iterdir()] == ["model"]
    assert bytes_of(model) == before


def test_weights_that_cannot_be_written_are_an_output_error(tmp_path: Path, monkeypatch) -> None:
    def failing(*_: Any) -> None:
        raise tables.SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr(tables, "save_file", failing)
    error = complaint(write_bundle, tmp_path / "m", make_parts())
    assert isinstance(error, OutputError) and "No space left on device" in str(error)
    assert list(tmp_path.iterdir()) == []


def test_the_hash_of_a_data_set_sees_every_part() -> None:
    rows = {
        "train": [("a", "r", "b"), ("b", "r", "c")],
        "aux": [("n", "r", "a")],
        "valid": [("a", "r", "c")],
        "test": [("n", "r", "c")],
    }
    known = {dataset_hash(make_dataset(**rows))}
    assert known == {dataset_hash(make_dataset(**rows))}
    for role in rows:
        known.add(dataset_hash(make_dataset(**{**rows, role: [*rows[role], ("c", "r", "a")]})))
    known.add(dataset_hash(make_dataset(**{**rows, "aux": [("N", "r", "a")], "test": [("N", "r", "c")]})))
    assert len(known) == 6
