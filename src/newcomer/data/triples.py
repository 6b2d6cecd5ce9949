"""Any file of triples in, any file of triples out; the format follows from the name.

Triples also come one by one with the number of their line: as a pipe gives them, or to say where one of a file stands.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from newcomer.data.delimited import delimited_rows, read_delimited
from newcomer.data.options import ReadOptions
from newcomer.data.parquet import read_parquet, row_of, write_parquet
from newcomer.data.rdf import FORMATS as RDF_FORMATS
from newcomer.data.rdf import LINE_FORMATS, rdf_rows, read_rdf, write_ntriples
from newcomer.data.tables import NamedTriples, NumberedRow, ReadReport
from newcomer.errors import InputError, OptionError, unknown_name
from newcomer.files import create_bytes, must_be_file, open_bytes, plain_suffix
from newcomer.graph import TripleArray, Vocabulary

PARQUET_SUFFIXES = (".parquet", ".pq")
TEXT_SUFFIXES = (".txt", ".tsv", ".csv", ".tab", ".data", "")
WRITTEN_SUFFIXES = (*PARQUET_SUFFIXES, ".nt", ".tsv", ".csv", ".txt")
WRITE_FORMATS = ("tsv", "tsv.gz", "tsv.zst", "parquet", "nt", "nt.gz")
WRITTEN_AT_ONCE = 1 << 18


def read_triples(path: Path, options: ReadOptions | None = None, anonymous: int = 0) -> NamedTriples:
    """Read triples by name from TSV, CSV, Parquet or RDF, plain or compressed.

    ``anonymous`` is how many nodes without a name the files read before this one had.
    """
    options = options or ReadOptions()
    must_be_file(path)
    suffix = plain_suffix(path)
    if suffix in PARQUET_SUFFIXES:
        return read_parquet(path, options)
    if suffix in RDF_FORMATS:
        return read_rdf(path, options, anonymous)
    return read_delimited(path, options)


def has_lines(suffix: str) -> bool:
    """Whether a format has one triple a line."""
    return suffix in LINE_FORMATS or suffix not in (*PARQUET_SUFFIXES, *RDF_FORMATS)


def numbered_rows(stream: Any, path: Path, options: ReadOptions, report: ReadReport) -> Iterator[NumberedRow]:
    """The triples of a stream, each as soon as its line is there; the ending of ``path`` says the format."""
    rows = rdf_rows if plain_suffix(path) in LINE_FORMATS else delimited_rows
    return rows(stream, path, options, report)


def at_fault(path: Path, options: ReadOptions, place: int, problem: str, hint: str = "") -> InputError:
    """The error for one of the triples that `read_triples` gave, with its line or row; Turtle and TriG tell neither."""
    suffix = plain_suffix(path)
    if suffix in PARQUET_SUFFIXES:
        return InputError(path, f"row {row_of(path, options, place)}: {problem}", hint=hint)
    if not has_lines(suffix):
        return InputError(path, problem, hint=hint)
    with open_bytes(path) as stream:
        stated = (number for number, row in numbered_rows(stream, path, options, ReadReport()) if row is not None)
        return InputError(path, problem, next(islice(stated, place, None)), hint)


def write_triples(path: Path, entities: Vocabulary, relations: Vocabulary, triples: TripleArray) -> None:
    """Write triples by name; ``path`` ends in .tsv, .csv, .parquet or .nt, the text formats also in .gz or .zst."""
    check_written_format(path)
    suffix = plain_suffix(path)
    if suffix in PARQUET_SUFFIXES:
        write_parquet(path, _columns(entities, relations, triples), triples.labels)
    elif suffix == ".nt":
        if triples.labels is not None and (triples.labels <= 0).any():
            raise OptionError(f"{path}: N-Triples cannot say that a triple is false; write labelled triples as tsv")
        write_ntriples(path, *_columns(entities, relations, triples))
    else:
        _write_text(path, entities, relations, triples, "," if suffix == ".csv" else "\t")


def check_written_format(path: Path) -> None:
    """Whether the ending names a format that can be written: worth asking before the work is done."""
    suffix = plain_suffix(path)
    if suffix not in WRITTEN_SUFFIXES:
        raise unknown_name("format to write", suffix.lstrip(".") or path.name, WRITE_FORMATS)


def _columns(entities: Vocabulary, relations: Vocabulary, triples: TripleArray) -> list[pa.DictionaryArray]:
    pairs = ((triples.heads, entities), (triples.relations, relations), (triples.tails, entities))
    return [pa.DictionaryArray.from_arrays(pa.array(ids), vocabulary.names) for ids, vocabulary in pairs]


def _write_text(path: Path, entities: Vocabulary, relations: Vocabulary, triples: TripleArray, delimiter: str) -> None:
    """Names are quoted once each, then rows are joined by Arrow: no Python work per triple."""
    entity_names, relation_names = (quoted(v.names, delimiter) for v in (entities, relations))
    with create_bytes(path) as stream:
        for start in range(0, len(triples), WRITTEN_AT_ONCE):
            part = triples.take(np.arange(start, min(start + WRITTEN_AT_ONCE, len(triples))))
            columns = [
                entity_names.take(pa.array(part.heads)),
                relation_names.take(pa.array(part.relations)),
                entity_names.take(pa.array(part.tails)),
            ]
            if part.labels is not None:
                columns.append(pa.array(["-1", "1"]).take(pa.array((part.labels > 0).astype(np.int32))))
            stream.write("\n".join([*pc.binary_join_element_wise(*columns, delimiter).to_pylist(), ""]).encode())


def quoted(names: pa.Array, delimiter: str) -> pa.Array:
    """Names as they stand in a delimited file: quoted where the delimiter, a quote or a line end is in them."""
    special = pc.match_substring_regex(names, f'["\r\n{delimiter}]|^\ufeff')
    if not pc.any(special).as_py():
        return names
    doubled = pc.replace_substring(names, '"', '""')
    return pc.if_else(special, pc.binary_join_element_wise('"', doubled, '"', ""), names)
