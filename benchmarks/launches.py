"""What a training step starts on its device: operations that start a kernel, by kind and by line, and waits.

    PYTHONPATH=src python benchmarks/launches.py [--preset P] [--data DATA] [--most N]

On a GPU a step of a small graph costs what it takes to start its kernels. They are counted here without one: on a
CPU, by the paths that a GPU takes (sums by blocks, the fused optimiser, gradients clipped together). An operation
counts once, though a GPU may start several kernels for it (those in `SEVERAL`, that sort or compact); operations that
only look at what is there, or only reserve memory, do not count. Operations of the backward pass count for the line
whose gradient they compute. A wait is an operation whose result the CPU must know before it can go on.

How many operations a step takes hardly depends on the graph. On a small one, as the sample is, there is next to nothing
to compute, and the time of a step on a CPU is what it takes to start them.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from bench_training import CPU, PRESET
from newcomer.config import Config, load_preset, with_overrides
from newcomer.data import load_dataset
from newcomer.models import sparse
from newcomer.models.embedding.graph_tensors import GraphTensors, build_graph_tensors
from newcomer.models.vn import encoder
from newcomer.training.embedding import Trainer
from newcomer.training.preparation import prepare

SOURCES = str(Path(sparse.__file__).parent.parent)
STEPS, TIMED = 3, 20
FREE = {  # operations that start nothing: they describe, or reserve
    *("view", "_unsafe_view", "reshape", "expand", "t", "transpose", "permute", "squeeze", "unsqueeze", "select"),
    *("slice", "split", "split_with_sizes", "unbind", "alias", "detach", "detach_", "as_strided", "_reshape_alias"),
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "unfold", "diagonal", "lift_fresh"),
    *("is_same_size", "sym_size", "_nested_tensor_size", "resize_", "set_", "numpy_T", "_local_scalar_dense"),
    *("_record_function_enter_new", "_record_function_exit"),
}
SEVERAL = {"sort", "argsort", "unique", "_unique2", "nonzero", "embedding_dense_backward", "index_put", "index_put_"}
WAITS = {"_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "masked_select", "bincount", "equal"}


class Launches(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what runs inside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kinds: Counter[str] = Counter()
        self.lines: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        if waits(name, args, kwargs):
            self.waits[f"{current_line()}  {name}"] += 1
        if name not in FREE:
            self.kinds[name] += 1
            self.lines[current_line()] += 1
        return func(*args, **kwargs)


def waits(name: str, args: Any, kwargs: Any) -> bool:
    """Whether the CPU must wait for a GPU to know how large the result is, or what it is."""
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):  # a mask: how many, only the GPU knows
        return any(index is not None and index.dtype == torch.bool for index in args[1])
    return name in WAITS


def current_line() -> str:
    """The line of the package at work: of the forward pass, for an operation of the backward pass."""
    node: Any = torch._C._current_autograd_node()
    if node is not None:
        return "backward of " + (forward_line(node) or node.name())
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(SOURCES):
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "elsewhere"


def forward_line(node: Any) -> str | None:
    """Where the forward pass made this node: the innermost line of the package, as anomaly detection remembers it."""
    for entry in reversed(node.metadata.get("traceback_", [])):
        place = entry.split("\n")[0].split('"')
        if len(place) > 2 and place[1].startswith(SOURCES):
            _, line, function = place[2].split(",")
            return f"{Path(place[1]).name}:{line.split()[-1]} {function.split()[-1]}"
    return None


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """The paths that tensors on a GPU take."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(functional, "dropout", fused_dropout))
        stack.enter_context(mock.patch.object(sparse, "_product", sparse.summed_by_blocks))
        stack.enter_context(mock.patch.object(sparse, "_sampled_products", sparse.sampled_by_bags))
        stack.enter_context(mock.patch.object(encoder, "one_pass_pays", lambda _: True))
        stack.enter_context(mock.patch.object(torch.nn.utils.clip_grad, "_has_foreach_support", lambda *_: True))
        yield


def fused_dropout(values: Tensor, share: float, training: bool) -> Tensor:
    """Dropout by one kernel, as there is one on a GPU."""
    return torch.native_dropout(values, share, training)[0] if training else values


def trainer_on(graph: GraphTensors, config: Config) -> Trainer:
    trainer = Trainer(config, graph, CPU)
    trainer.optimiser = torch.optim.Adam(trainer.model.parameters(), lr=config.training.lr, fused=True)
    trainer.model.train()
    return trainer


def counted(graph: GraphTensors, config: Config) -> Launches:
    """The operations of a few steps, after two that are not counted: what is found once is found by then."""
    trainer, generator = trainer_on(graph, config), torch.Generator().manual_seed(0)
    batches = list(trainer._batches(generator))
    with as_on_a_gpu():
        for number in range(2):
            trainer._step(*batches[number % len(batches)], generator)
        launches = Launches()
        with torch.autograd.set_detect_anomaly(True, check_nan=False), launches:
            for number in range(STEPS):
                trainer._step(*batches[number % len(batches)], generator)
    return launches


def step_seconds(graph: GraphTensors, config: Config) -> float:
    """The shortest of several steps."""
    trainer, generator, best = trainer_on(graph, config), torch.Generator().manual_seed(0), float("inf")
    batches = list(trainer._batches(generator))
    with as_on_a_gpu():
        for number in range(TIMED):
            start = time.perf_counter()
            trainer._step(*batches[number % len(batches)], generator)
            best = min(best, time.perf_counter() - start)
    return best


def graph_of(data: str, config: Config) -> GraphTensors:
    prepared = prepare(load_dataset(data), config)
    return build_graph_tensors(prepared.dataset.observed, prepared.num_seen, prepared.seen_neighbors, CPU)


def show(title: str, counts: Counter[str], most: int) -> None:
    """The most frequent, a step, and how many all are."""
    print(f"\n{title}: {sum(counts.values()) / STEPS:.0f} a step")
    for what, count in counts.most_common(most):
        print(f"  {count / STEPS:7.1f}  {what}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default=PRESET)
    parser.add_argument("--data", default="sample", help="a data set: its folder or its name")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change a setting")
    parser.add_argument("--most", type=int, default=25, help="how many kinds and lines to show")
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = with_overrides(load_preset(options.preset), options.set)
    graph = graph_of(options.data, config)
    launches = counted(graph, config)
    several = Counter({kind: count for kind, count in launches.kinds.items() if kind in SEVERAL})
    show("lines", launches.lines, options.most)
    show("waits", launches.waits, options.most)
    show("operations of several kernels each", several, options.most)
    show("operations", launches.kinds, options.most)
    print(f"\n{1000 * step_seconds(graph, config):.1f} ms a step, the best of {TIMED}, on one thread of the CPU")


if __name__ == "__main__":
    main()
