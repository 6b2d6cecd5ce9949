"""Trace one query of a small trained model: the modules it enters, and how often control changes between packages.

``trace_question.py [RUN ENTITY RELATION]`` traces ``Predictor.tails`` of a model in a folder; without arguments a small
model is trained on the sample graph first. A package is a top-level part of ``newcomer``, such as ``predictor``.
"""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import newcomer

ROOT = Path(newcomer.__file__).parent
QUICK = ("model.dim=16", "training.epochs=2", "training.batches=10", "training.validation_rate=0")
FACTS = [("Atlantis", "borders", "Portugal"), ("Atlantis", "borders", "Spain"), ("Atlantis", "speaks", "Portuguese")]


class Trace:
    """Counts calls by module, and changes of control from one package to another, both ways."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.changes: Counter[tuple[str, str]] = Counter()
        self.packages: list[str] = []  # in the order in which they are entered first
        self._stack: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function: `sys.setprofile` calls it at every call and return."""
        module = _module_of(frame)
        if module is None:
            return
        package = module.partition(".")[0]
        if event == "call":
            self.calls[module] += 1
            if package not in self.packages:
                self.packages.append(package)
            if self._stack:
                self._change(self._stack[-1], package)
            self._stack.append(package)
        elif event == "return" and self._stack:
            self._stack.pop()
            if self._stack:
                self._change(package, self._stack[-1])

    def _change(self, before: str, after: str) -> None:
        if before != after:
            self.changes[before, after] += 1


def _module_of(frame: FrameType) -> str | None:
    """``predictor.engine`` for a frame of that file; None for code of others."""
    path = Path(frame.f_code.co_filename)
    return ".".join(path.relative_to(ROOT).with_suffix("").parts) if path.is_relative_to(ROOT) else None


def main() -> None:
    """Trace and print."""
    if len(sys.argv) == 4:
        model, (entity, relation) = newcomer.load(sys.argv[1]), sys.argv[2:]
    else:
        model, entity, relation = newcomer.train("sample", settings=QUICK), "Atlantis", "in_region"
        model.add(FACTS)
    model.tails(entity, relation, k=1)  # what is made once for all questions is there now
    model = model.copy()
    trace = Trace()
    sys.setprofile(trace)
    try:
        model.tails(entity, relation, k=1)
    finally:
        sys.setprofile(None)
    print(f"Predictor.tails({entity!r}, {relation!r}): {trace.calls.total():,} calls")
    print(f"packages, in the order entered: {' -> '.join(trace.packages)}")
    print(f"modules entered: {len(trace.calls)}")
    for module, count in trace.calls.most_common():
        print(f"  {module:<40} {count:>6,}")
    print(f"changes of package: {trace.changes.total():,}")
    for (before, after), count in trace.changes.most_common():
        print(f"  {before:<15} -> {after:<15} {count:>6,}")


if __name__ == "__main__":
    main()
