"""Data in and out: any layout read, our own written, named sets found, graphs split, described and checked."""

from pathlib import Path

from newcomer.data.catalogue import expanded, find_folder
from newcomer.data.dataset import LoadedDataset, read_dataset, read_graph, write_dataset
from newcomer.data.options import ReadOptions
from newcomer.data.split import SplitRule, split_graph
from newcomer.files import looking_at
from newcomer.graph import InductiveDataset

__all__ = [
    "LoadedDataset",
    "ReadOptions",
    "SplitRule",
    "load_dataset",
    "locate",
    "read_dataset",
    "read_graph",
    "split_graph",
    "write_dataset",
]


def load_dataset(name_or_path: str | Path, options: ReadOptions | None = None) -> InductiveDataset:
    """A data set by path, by name in ``NEWCOMER_DATA`` or the cache, or ``sample``.

    >>> data = newcomer.load_dataset("sample")
    >>> len(data.observed), len(data.newcomers)
    (8234, 293)
    """
    return read_dataset(locate(name_or_path), options).dataset


def locate(name_or_path: str | Path) -> Path:
    """A single file as it is; anything else as `find_folder` finds it."""
    path = expanded(name_or_path)
    with looking_at(path):
        return path if path.is_file() else find_folder(name_or_path)
