"""``python -m newcomer``."""

from newcomer.cli import main

main()
