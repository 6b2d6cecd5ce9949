"""A slice of the fuzzed command lines: each input is answered or refused as it must be."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SLICE = 250


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        made = import_module("fuzz_commands").Fuzzer(tmp_path_factory.mktemp("fuzz"))
        yield made
        made.close()


def test_a_slice_of_all_inputs_is_answered_or_refused(fuzzer: Any) -> None:
    codes = set()
    for number in range(SLICE):
        case, done, problems = fuzzer.run(number)
        assert not problems, (number, case.words, done.complained)
        codes.add(done.code)
    assert {0, 2} <= codes


def test_an_input_is_the_same_whenever_it_is_drawn(fuzzer: Any) -> None:
    for number in range(20):
        drawn = []
        for _ in range(2):
            case = fuzzer.drawn(number)
            files = {str(path.relative_to(case.folder)): path for path in case.folder.rglob("*") if path.is_file()}
            drawn.append((case.words, case.piped, {name: path.read_bytes() for name, path in files.items()}))
        assert drawn[0] == drawn[1]
