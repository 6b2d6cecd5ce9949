"""Run every benchmark beside this file, one after the other; exit code 1 where a bar was missed."""

import subprocess
import sys
from pathlib import Path


def main() -> None:
    missed = []
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        print(f"\n== {path.stem}", flush=True)
        if subprocess.run([sys.executable, str(path)], check=False).returncode != 0:
            missed.append(path.stem)
    if missed:
        sys.exit(f"bars missed in: {', '.join(missed)}")


if __name__ == "__main__":
    main()
