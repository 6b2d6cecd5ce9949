"""The plain files of a trained model: JSON, Parquet and safetensors, written in one way and read with every check."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from newcomer.errors import InputError, one_line, shown
from newcomer.files import looking_at

Weights = Mapping[str, npt.NDArray[Any]]
TOO_LARGE = 1e9  # for a trained number: products of a few such would overflow


def damaged(path: Path, problem: str) -> InputError:
    """The error for content that is not as newcomer writes it."""
    return InputError(path, problem, hint="copy the folder again from where it was made")


def write_table(path: Path, columns: dict[str, pa.Array]) -> None:
    """Columns as a Parquet file."""
    with path.open("wb") as file:
        pq.write_table(pa.table(columns), file, compression="zstd")


def write_weights(path: Path, weights: Weights) -> None:
    """Arrays as a safetensors file, by name."""
    ready = {name: np.asarray(weights[name], order="C") for name in sorted(weights)}  # it takes memory as it lies
    try:
        save_file(ready, path)
        path.chmod(0o644)  # as the files beside it; the library keeps others out
    except SafetensorError as error:  # such as of a full disk: `fresh_folder` makes a sentence of it
        raise OSError(str(error)) from None


def plain(value: Any) -> Any:
    """A value as JSON can hold it: arrays as lists, numbers that are not finite (an average of nothing) as null."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_bytes(value: Any) -> bytes:
    """JSON in one way only, so that the same content is the same bytes; in ASCII, which holds any name."""
    return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n").encode("ascii")


@contextmanager
def foreign(path: Path, problem: str) -> Iterator[None]:
    """Content that its library cannot read, though the bytes are those of the manifest, is an `InputError`."""
    try:
        yield
    except (ValueError, KeyError, TypeError, RecursionError, OSError, pa.ArrowException, SafetensorError) as error:
        raise damaged(path, f"{problem} ({one_line(error)})") from None


def bytes_of(path: Path) -> bytes:
    """The content of a file."""
    with looking_at(path):
        return path.read_bytes()


def read_json(path: Path) -> dict[str, Any]:
    """The table in a JSON file."""

    def refuse(number: str) -> float:
        raise ValueError(f"{number} is no number in JSON")

    with foreign(path, "is not JSON"):
        content = json.loads(bytes_of(path).decode("utf-8"), parse_constant=refuse)
    if not isinstance(content, dict):
        raise damaged(path, f"holds {shown(content)} where a table is expected")
    return content


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """A Parquet file that has these columns and no empty cell."""
    with foreign(path, "is not a Parquet file"):
        table = pq.ParquetFile(pa.BufferReader(bytes_of(path))).read()
        table.validate(full=True)  # what a file calls a string need not be UTF-8
    if not table.schema.equals(schema):
        found = ", ".join(f"{column.name} {column.type}" for column in table.schema)
        wanted = ", ".join(f"{column.name} {column.type}" for column in schema)
        raise damaged(path, f"has the columns {shown(found)} where {wanted!r} are expected")
    if any(column.null_count for column in table.columns):
        raise damaged(path, "has empty cells")
    return table


def read_weights(path: Path) -> Weights:
    """The arrays of a safetensors file, by name."""
    with foreign(path, "is not a safetensors file"):
        found = load_file(path)
    for name, numbers in found.items():
        if numbers.dtype.kind == "f" and not float(np.abs(numbers).max(initial=0)) < TOO_LARGE:
            raise damaged(path, f"has numbers in {shown(name)} that no training gives, such as nan")
    return {name: found[name] for name in sorted(found)}
