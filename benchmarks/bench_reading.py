"""Reading, splitting, starting: against Arrow's own CSV reader, in bytes a triple, against a bare interpreter."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from harness import PEAK_BYTES, Bar, best_of, data_folder, finish, in_child
from newcomer.data import read_graph

TRIPLES, ENTITIES, RELATIONS = 10_000_000, 1_000_000, 200

READ_AND_SPLIT = (
    PEAK_BYTES
    + """
import json, sys, time
from pathlib import Path
from newcomer.data import SplitRule, read_dataset, split_graph
start = time.perf_counter()
loaded = read_dataset(Path(sys.argv[1]))
read = time.perf_counter() - start
peak = peak_bytes()
start = time.perf_counter()
split_graph(loaded.dataset, SplitRule("subject", rate=1.0))
split = time.perf_counter() - start
print(json.dumps({"read": read, "peak": peak, "triples": len(loaded.dataset.observed), "split": split}))
"""
)


def arrow_baseline(path: Path) -> None:
    options = pacsv.ParseOptions(delimiter="\t", quote_char=False)
    table = pacsv.read_csv(path, pacsv.ReadOptions(column_names=["h", "r", "t"]), options)
    for name in table.column_names:
        table.column(name).dictionary_encode()


def reading() -> list[Bar]:
    folder = data_folder("fb15k")
    if folder is None:
        return []
    path = folder / "train.txt.gz"
    ours = best_of(7, lambda: read_graph(path))
    theirs = best_of(7, lambda: arrow_baseline(path))
    detail = f"ours {ours:.3f} s, pyarrow.csv + dictionary_encode {theirs:.3f} s"
    return [Bar("reading FB15K train (483,142 triples, gzip) over Arrow", ours / theirs, 2.0, detail=detail)]


def write_synthetic(path: Path) -> None:
    """Ten million triples with a power-law of entities, written in slices."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for _ in range(20):
            count = TRIPLES // 20
            skewed = (ENTITIES * rng.random(count) ** 2).astype(np.int64)
            heads = pa.array(skewed).cast(pa.string())
            tails = pa.array(rng.integers(0, ENTITIES, count)).cast(pa.string())
            relations = pa.array(rng.integers(0, RELATIONS, count)).cast(pa.string())
            rows = pa.compute.binary_join_element_wise("e", heads, "\tr", relations, "\te", tails, "\n", "")
            file.write(memoryview(rows.buffers()[2])[: _used(rows)])


def _used(rows: pa.Array) -> int:
    offsets = np.frombuffer(rows.buffers()[1], dtype=np.int32)
    return int(offsets[len(rows)])


def memory() -> list[Bar]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "synthetic.tsv"
        write_synthetic(path)
        bare = in_child("pass").peak_bytes
        child = in_child(READ_AND_SPLIT, str(path))
    said = child.said
    per_triple = (said["peak"] - bare) / TRIPLES
    read_detail = f"{said['read']:.1f} s, {said['peak'] / 2**20:.0f} MiB peak, {said['triples']:,.0f} distinct triples"
    split_detail = f"split {said['split']:.1f} s, read {said['read']:.1f} s"
    return [
        Bar("peak bytes a triple, 10 million triples loaded", per_triple, 60.0, detail=read_detail),
        Bar("splitting 10 million triples over reading them", said["split"] / said["read"], 1.0, detail=split_detail),
    ]


def start_up() -> list[Bar]:
    command = str(Path(sys.executable).parent / "newcomer")
    bare = best_of(15, lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))
    ours = best_of(15, lambda: subprocess.run([command, "--help"], check=True, stdout=subprocess.DEVNULL))
    detail = f"{ours * 1000:.0f} ms against {bare * 1000:.0f} ms"
    return [Bar("newcomer --help over python -c pass", ours / bare, 15.0, detail=detail)]


if __name__ == "__main__":
    finish([*reading(), *memory(), *start_up()])
