"""The rooms of the house: imports go one way, heavy packages stay out of light rooms, every module has a test."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "newcomer"
TESTS = Path(__file__).parent
LEVELS = [
    {"errors"},
    {"config", "files", "graph", "locks"},
    {"data", "rules", "store"},
    {"models", "exchange"},
    {"evaluation"},
    {"training"},
    {"predictor"},
    {"service", "reproduction"},
    {"api"},
    {"cli"},
]
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
TORCH_FREE = {"errors", "config", "files", "graph", "locks", "data", "rules", "store", "exchange"}
# Modules whose behaviour is tested through another one's test file.
TESTED_ELSEWHERE = {"cli/common.py": "test_cli.py", "cli/app.py": "test_cli.py"}
TESTED_ELSEWHERE |= {f"rules/mining/{name}.py": "test_horn.py" for name in ("bodies", "support", "index")}
TESTED_ELSEWHERE |= {"rules/mining/plan.py": "test_miner.py"}
TESTED_ELSEWHERE |= {f"rules/files/{name}.py": "test_rule_table.py" for name in ("lines", "listings")}
TESTED_ELSEWHERE |= {f"config/{name}.py": "test_config.py" for name in ("fields", "settings", "reading")}
STORE = ("faults", "logbook", "naming", "places", "reading", "records", "schema", "texts", "writing")
TESTED_ELSEWHERE |= {f"store/{name}.py": "test_store.py" for name in STORE}


def modules() -> list[Path]:
    return [p for p in sorted(SOURCE.rglob("*.py")) if p.name not in ("__init__.py", "__main__.py")]


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {n.split(".")[1] for n in names if n.startswith("newcomer.")}
    return found


def imported_packages(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_room_imports_only_rooms_below_it(path):
    own = room_of(path)
    assert own in LEVEL_OF, f"{own} has no place in the house: give it a level"
    for other in imported_rooms(ast.parse(path.read_text(encoding="utf-8"))) - {own}:
        assert LEVEL_OF[other] < LEVEL_OF[own], f"{own} must not import {other}"


@pytest.mark.parametrize("path", [p for p in modules() if room_of(p) in TORCH_FREE], ids=lambda p: p.name)
def test_light_rooms_know_no_torch(path):
    assert "torch" not in imported_packages(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.name)
def test_every_module_says_what_it_holds(path):
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring and len(docstring) > 20


def test_no_import_cycle_between_modules():
    graph = {}
    for path in modules():
        name = "newcomer." + ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for_types = [node for block in tree.body if isinstance(block, ast.If) for node in block.body]
        top_level = [n for n in [*tree.body, *for_types] if isinstance(n, ast.ImportFrom) and n.module]
        graph[name] = {n.module for n in top_level if n.module.startswith("newcomer.")}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"import cycle: {' -> '.join((*trail, name))}"
        if name not in done:
            for other in graph.get(name, ()):
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_every_module_has_a_test_file(path):
    relative = path.relative_to(SOURCE).as_posix()
    name = TESTED_ELSEWHERE.get(relative, f"test_{path.stem}.py")
    if path.parent.name == "cli":
        name = "test_cli.py"
    parent = f"test_{path.stem.split('_')[0]}.py"  # foldin_solver.py is tested as a part of foldin.py
    assert any((TESTS / n).exists() for n in (name, parent)) or _named_in_a_test(path), (
        f"{relative} has no tests/{name}"
    )


def _named_in_a_test(path: Path) -> bool:
    dotted = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    return any(dotted in test.read_text(encoding="utf-8") for test in TESTS.glob("test_*.py"))


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom newcomer.cli import main\nsys.argv = ['newcomer', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'numba', 'pyarrow', 'numpy', 'matplotlib', 'pandas'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {sorted(heavy)}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage: newcomer" in done.stdout


def test_import_newcomer_is_light_and_names_what_it_offers():
    code = "import sys, newcomer\nassert 'numpy' not in sys.modules\n[getattr(newcomer, n) for n in newcomer.__all__]\n"
    subprocess.run([sys.executable, "-c", code], check=True)


LONG_KERNELS = {"layer_gradients"}  # a kernel's parameters alone take a third of a screen


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_files_and_functions_stay_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 450
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name not in LONG_KERNELS:
            assert (node.end_lineno or 0) - node.lineno < 60, f"{node.name} is longer than a screen"
