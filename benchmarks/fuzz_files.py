"""Files as they should not be: triples in every format, and bytes, tables, JSON and arrays with something wrong."""

import gzip
import io
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load, save

Triple = tuple[str, str, str]

NASTY_NAMES = (
    *("", " ", "-", "--", "?", "*", ".", "..", "#", "a b", "  lead", "trail ", "nan", "none", "null", "-1", "1e999"),
    *("\u202eabc\u202c", "שלום", "مرحبا", "😀", "👩‍👩‍👧", "\ufeff", "é", "e\u0301", "\u2028", "\x85", "\x0b", "\x0c"),
    *("\x1b[31mred", '"', '""', "'", "\\", "\\n", "%s", "{}", "{0}", "<a>", "_:b", "[bold]", "a,b", "a(b,c)", "x", "X"),
    *("a => b", "a <= b", "?a", "\x7f", "\x01", "ß", "İ", "\U0010ffff", "\ufffe", "long" * 1500, "r" * 300),
)
NASTY_BYTES = (
    *(b"\x00", b"\xff", b"\xfe\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3", b"\xf4\x90\x80\x80"),
    *(b"\r", b"\r\n", b"\n", b"\n\n", b"\t", b"\t\t", b" ", b",", b";", b"|", b'"', b'""', b"'", b"\\", b"\x1a"),
    *(b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"<", b">", b"<a> <b> <c> .", b"@prefix", b"?a", b"=>", b" <= "),
    *(b"(", b")", b"[", b"]", b"{", b"}", b"nan", b"inf", b"-1", b"0", b"9" * 400, b"1e999", b"true", b"null"),
    *("\u202e".encode(), "\u2028".encode(), "\x85".encode(), "😀".encode(), b"#", b"=", b".", b"a" * 70_000),
)
NASTY_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63), 10**400, 0.5, -0.0, 1e308, "", "x", "none", "auto", "\x00"),
    *([], {}, [1], [[]], {"a": 1}, "é", "\ud800", "9" * 400, [None] * 3, ["x", "x"], {"low": 1}, "2**31"),
)
OTHER_SETTINGS = (  # each right for some setting
    *("0", "1", "2", "3", "6", "0.5", "true", "false", '"auto"', '"none"', '"vn"', '"mean"', '"lan"', '"lstm"'),
    *('"foldin"', '"distmult"', '"transe"', '"complex"', '"soft"', '"hard"', '"standard"', "[]", '["one", "exists"]'),
)
NASTY_IDS = (-1, -2, 0, 1, 7, 100, 2**31 - 1, -(2**31))
NASTY_NUMBERS = (np.nan, np.inf, -np.inf, 1e38, -1e38, 0.0, 1e-45)


def mutated(rng: Random, content: bytes) -> bytes:
    """Content with one to four things wrong."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        content = rng.choice(BYTE_CHANGES)(rng, content)
    return content


def _spot(rng: Random, content: bytes) -> int:
    return rng.randrange(len(content) + 1)


def _cut_off(rng: Random, content: bytes) -> bytes:
    return content[: _spot(rng, content)]


def _flip(rng: Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(min(len(changed), rng.choice((1, 1, 3, 20)))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _insert(rng: Random, content: bytes) -> bytes:
    spot = _spot(rng, content)
    return content[:spot] + rng.choice(NASTY_BYTES) * rng.choice((1, 1, 1, 3)) + content[spot:]


def _replace_word(rng: Random, content: bytes) -> bytes:
    words = content.split()
    return content.replace(rng.choice(words), rng.choice(NASTY_BYTES), rng.choice((1, 1, -1))) if words else b"?"


def _remove_span(rng: Random, content: bytes) -> bytes:
    first, last = sorted((_spot(rng, content), _spot(rng, content)))
    return content[:first] + content[min(last, first + rng.choice((1, 5, 1000))) :]


def _change_lines(rng: Random, content: bytes) -> bytes:
    lines = content.split(b"\n")
    place = rng.randrange(len(lines))
    kind = rng.randrange(6)
    if kind == 0:
        del lines[place]
    elif kind == 1:
        lines *= 2
    elif kind == 2:
        lines[place] = rng.choice(NASTY_BYTES)
    elif kind == 3:
        lines[place] = lines[place] + b"\t" + rng.choice(NASTY_BYTES)
    elif kind == 4:
        rng.shuffle(lines)
    else:
        lines.insert(place, b"head\trelation\ttail")
    return b"\n".join(lines)


def _whole(rng: Random, content: bytes) -> bytes:
    text = content.decode("utf-8", "replace")
    return rng.choice(
        (
            lambda: b"",
            lambda: b"\n" * rng.choice((1, 50)),
            lambda: b"\xef\xbb\xbf" + content,
            lambda: content.replace(b"\n", b"\r\n"),
            lambda: content.replace(b"\n", b"\r"),
            lambda: text.encode("utf-16"),
            lambda: text.encode("latin-1", "replace"),
            lambda: rng.randbytes(rng.choice((1, 4, 100, 5000))),
            lambda: gzip.compress(content, 1),
            lambda: gzip.compress(content, 1)[:-5],
            lambda: pa.compress(content, codec="zstd", asbytes=True),
            lambda: pa.compress(content, codec="zstd", asbytes=True)[:-3],
            lambda: gzip.compress(content, 1) + b"rubbish",
            lambda: b"\x00" * 500,
            lambda: content.replace(b"\t", b" "),
            lambda: content.replace(b"\t", b"\t\t"),
            lambda: content.rstrip(b"\n"),
        )
    )()


BYTE_CHANGES = (_cut_off, _flip, _insert, _insert, _replace_word, _remove_span, _change_lines, _whole)


def strange_rows(rng: Random, rows: Sequence[Triple]) -> list[tuple[str, ...]]:
    """Triples of which some names, or how many there are in a row, are not as they should be."""
    strange: list[tuple[str, ...]] = list(rows)
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        place = rng.randrange(len(strange))
        row = list(strange[place])
        kind = rng.randrange(6)
        if kind < 3:
            row[rng.randrange(len(row))] = rng.choice(NASTY_NAMES)
        elif kind == 3:
            row.append(rng.choice(("1", "-1", "0", "true", "maybe", "", "2")))
        elif kind == 4:
            row = row[: rng.randrange(1, len(row) + 1)]
        else:
            strange.append(tuple(row))
        strange[place] = tuple(row)
    return strange


def triples_in(rng: Random, form: str, rows: Sequence[tuple[str, ...]]) -> bytes:
    """Rows in a format, by the ending of its files; what a format cannot hold is written nevertheless."""
    if form == "parquet":
        return parquet_of(rng, rows)
    if form in ("nt", "nq", "ttl", "trig"):
        return "".join(" ".join(f"<{name}>" for name in row) + " .\n" for row in rows).encode()
    between = {"csv": ",", "tsv": "\t", "txt": rng.choice("\t ;|,")}[form]
    return ("\n".join(between.join(row) for row in rows) + "\n").encode("utf-8", "surrogatepass")


def parquet_of(rng: Random, rows: Sequence[tuple[str, ...]]) -> bytes:
    """A Parquet file of rows, its columns of any type."""
    full = [(*row, "", "", "")[:3] for row in rows]
    columns = [pa.array([row[place] for row in full], type=pa.string()) for place in range(3)]
    names = ["head", "relation", "tail"]
    changes = {
        "as it should be": lambda one: one,
        "a dictionary": lambda one: one.dictionary_encode(),
        "large": lambda one: one.cast(pa.large_string()),
        "bytes": lambda one: one.cast(pa.binary()),
        "whole numbers": lambda one: pa.array(range(len(one))),
        "numbers": lambda one: pa.array([0.5] * len(one)),
        "nothing": lambda one: pa.nulls(len(one)),
        "empty cells": lambda one: pa.array([None, *one.to_pylist()[1:]], type=pa.string()),
        "lists": lambda one: pa.array([[name] for name in one.to_pylist()]),
        "no UTF-8": lambda one: pa.array([b"\xff"] * len(one)).cast(pa.binary()).view(pa.string()),
    }
    if rng.random() < 0.5:
        place = rng.randrange(3)
        columns[place] = changes[rng.choice(list(changes))](columns[place])
    if rng.random() < 0.2:
        names[rng.randrange(3)] = rng.choice(("head", "subject", "", "x", "é"))
    if rng.random() < 0.2:
        columns.append(pa.array([rng.choice((1, -1, 0, 2, None)) for _ in full]))
        names.append("label")
    if rng.random() < 0.1:
        columns, names = columns[:2], names[:2]
    return _parquet_bytes(pa.Table.from_arrays(columns, names=names))


def _parquet_bytes(table: pa.Table) -> bytes:
    into = io.BytesIO()
    pq.write_table(table, into)
    return into.getvalue()


def changed_json(rng: Random, content: bytes) -> bytes:
    """JSON with one value that is another one, is missing, or has another name."""
    try:
        tree = json.loads(content)
    except ValueError:
        return mutated(rng, content)
    places = list(_places(tree))
    if not places:
        return b"[]"
    inside, key = rng.choice(places)
    kind = rng.randrange(4)
    if kind < 2:
        inside[key] = rng.choice(NASTY_VALUES)
    elif kind == 2:
        del inside[key]
    elif isinstance(inside, dict):
        inside[rng.choice(NASTY_NAMES)] = inside.pop(key)
    else:
        inside.append(inside[key])
    return json.dumps(tree).encode()


def _places(tree: Any) -> Any:
    """Where the values of a tree stand: what they are inside of, and under which name or number."""
    pairs: Any = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(pairs):
        yield tree, key
        yield from _places(value)


def changed_table(rng: Random, content: bytes) -> bytes:
    """A Parquet file with other numbers, names, columns or rows."""
    try:
        table = pq.read_table(io.BytesIO(content))
    except (pa.ArrowException, OSError):
        return mutated(rng, content)
    kind = rng.randrange(8) if table.num_rows else rng.randrange(5, 8)
    place = rng.randrange(table.num_columns)
    name, column = table.column_names[place], table.column(place)
    if kind < 4:
        values = column.to_pylist()
        some = [rng.randrange(len(values)) for _ in range(rng.choice((1, 1, 3)))]
        for row in some if rng.random() < 0.8 else range(len(values)):
            values[row] = _another(rng, values[row], len(values))
        column = pa.chunked_array([pa.array(values, type=column.type)])
        return _parquet_bytes(table.set_column(place, table.schema.field(place), column))
    if kind == 4:
        rows = [rng.randrange(table.num_rows) for _ in range(rng.choice((0, 1, table.num_rows, 2 * table.num_rows)))]
        return _parquet_bytes(table.take(pa.array(rows, type=pa.int64())))
    if kind == 5:
        return _parquet_bytes(table.drop_columns([name]))
    if kind == 6:
        return _parquet_bytes(table.rename_columns([rng.choice(NASTY_NAMES), *table.column_names[1:]]))
    kinds = (pa.int64(), pa.int32(), pa.string(), pa.float32())
    empty = pa.nulls(table.num_rows, type=rng.choice(kinds))
    return _parquet_bytes(table.set_column(place, name, empty))


def _another(rng: Random, value: Any, rows: int) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((*NASTY_IDS, rows, min(value + 1, 2**31 - 1)))
    if isinstance(value, float):
        return float(rng.choice(NASTY_NUMBERS))
    return rng.choice(NASTY_NAMES)


def changed_arrays(rng: Random, content: bytes) -> bytes:
    """A safetensors file (without what its header says beside) of which one array is another, or missing."""
    try:
        arrays = load(content)
    except (SafetensorError, ValueError, KeyError):
        return mutated(rng, content)
    return save(with_another_array(rng, arrays))


def with_another_array(rng: Random, arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays, one of them changed."""
    if not arrays:
        return {"x": np.zeros(3, np.float32)}
    name = rng.choice(sorted(arrays))
    value = arrays[name].copy()
    kind = rng.randrange(8)
    if kind < 3 and value.size:
        place = rng.randrange(value.size) if kind else slice(None)
        with np.errstate(all="ignore"):
            value.reshape(-1)[place] = rng.choice(NASTY_NUMBERS if value.dtype.kind == "f" else (0, 1, -1, 100))
        return {**arrays, name: value}
    changes: tuple[Callable[[], dict[str, Any]], ...] = (
        lambda: {key: one for key, one in arrays.items() if key != name},
        lambda: {**arrays, name: value.reshape(-1)},
        lambda: {**arrays, name: value[:0] if value.ndim else value.reshape(1)},
        lambda: {**arrays, name: value.astype(rng.choice((np.float64, np.float16, np.int64, np.bool_)))},
        lambda: {**arrays, rng.choice(("x", "labels", "ensemble", "propagation.x", "é", "optimiser.x.y")): value},
        lambda: {**arrays, name: np.concatenate([value, value]) if value.ndim else np.stack([value, value])},
    )
    with np.errstate(all="ignore"):
        return rng.choice(changes)()


def changed_toml(rng: Random, content: bytes, names: Sequence[str]) -> bytes:
    """A TOML file of settings with another value, name, section or line."""
    lines = content.decode("utf-8", "replace").split("\n")
    stated = [place for place, line in enumerate(lines) if "=" in line and not line.startswith("#")]
    if not stated or rng.random() < 0.15:
        return mutated(rng, content)
    place = rng.choice(stated)
    name, _, value = lines[place].partition(" = ")
    kind = rng.randrange(8)
    if kind > 4:
        lines[place] = f"{name} = {rng.choice(OTHER_SETTINGS)}"
    elif kind < 2:
        strange = [word for word in (_toml(one) for one in NASTY_VALUES) if word is not None]
        lines[place] = f"{name} = {rng.choice((*strange, 'nan', '-inf', '1e400', '1979-05-27', '0x1F', 'x'))}"
    elif kind == 2:
        lines[place] = f"{rng.choice(names).rpartition('.')[2]} = {value}"
    elif kind == 3:
        lines.insert(
            place, rng.choice(("[rules]", "[model.x]", "[[model]]", "[x]", lines[place], "model = 1", "a.b=1"))
        )
    else:
        del lines[place]
    return "\n".join(lines).encode("utf-8", "replace")


def _toml(value: Any) -> str | None:
    """A value as TOML writes it; None where it has no way to."""
    if value is None or isinstance(value, dict) or value == [None] * 3:
        return None
    return json.dumps(value)
