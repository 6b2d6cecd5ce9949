#!/usr/bin/env bash
# The story so far, on the small real graph that ships with the package: countries, cities, languages, currencies.
set -euo pipefail

say() { printf '\n\033[1m%s\033[0m\n' "$1"; }

say "1. A real graph. Its newcomers are the states that became independent since 1990, and their cities."
newcomer describe sample --top 8

say "2. Is it sound? Do files overlap, do relations give each other away?"
newcomer data check sample

say "3. Another cut of the same graph: a fifth of the test facts is drawn, their subjects are declared newcomers."
newcomer split sample demo/split --unseen subject --rate 20 --seed 0 --force

say "4. Some facts that a model would be told of its newcomers (demo/split/aux.tsv), and some it would be asked."
shuf -n 5 --random-source=<(yes) demo/split/aux.tsv
echo "   ..."
shuf -n 5 --random-source=<(yes) demo/split/test.tsv
