#!/usr/bin/env bash
# The whole story, on the small real graph that ships with the package: countries, cities, languages, currencies.
set -euo pipefail

say() { printf '\n\033[1m%s\033[0m\n' "$1"; }

say "1. A real graph. Its newcomers are the states that became independent since 1990, and their cities."
newcomer describe sample --top 8

say "2. Is it sound? Do files overlap, do relations give each other away?"
newcomer data check sample

say "3. What regularities does it have? Rules, mined exactly from what was there before the newcomers came."
newcomer mine sample --out demo/rules.tsv --top 12 --force

say "4. Newcomers arrive with a few facts each. What do rules that are right in 80 % of all cases infer?"
newcomer enrich sample --rules demo/rules.tsv --out demo/enriched --measure standard --force

say "5. For example Kazakhstan: virtual neighbours, with the reason for each."
awk -F'\t' '
  function plain(text) { gsub(/^"|"$/, "", text); gsub(/""/, "\"", text); return text }
  ($1 == "Kazakhstan" || $3 == "Kazakhstan") && !seen[$1 FS $2 FS $3]++ {
    premises = plain($7); if ($8 != "") premises = premises " and " plain($8); if ($9 != "") premises = premises " and " plain($9)
    printf "  %s(%s, %s)  %.2f\n      because %s\n      by the rule %s\n", $2, $1, $3, $4, premises, plain($6) }' \
  demo/enriched/groundings.tsv

say "6. How good are rules alone? Each held-out fact of a newcomer is ranked among all entities."
newcomer rules evaluate sample --rules demo/rules.tsv

say "7. A small network and the rules together, weighed on newcomers that are held out of the graph for that."
newcomer train sample --out demo/model --force

say "8. The same held-out facts as in 6, asked of the model."
newcomer evaluate demo/model --rules-row --force

say "9. Someone arrives whom no model was trained on. What is known of her:"
printf 'Atlantis\tborders\tPortugal\nAtlantis\tborders\tSpain\nAtlantis\tspeaks\tPortuguese\n' > demo/newcomer.tsv
cat demo/newcomer.tsv

say "10. What is likely missing, and why?"
newcomer suggest demo/model --facts demo/newcomer.tsv --top 8

say "11. One answer in full."
newcomer explain demo/model --facts demo/newcomer.tsv --relation in_region --top 1

say "12. Any graph can be cut like this one: a fifth of the test facts is drawn, their subjects are declared newcomers."
newcomer split sample demo/split --unseen subject --rate 20 --seed 0 --force
