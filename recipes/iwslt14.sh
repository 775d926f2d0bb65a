#!/usr/bin/env bash
# IWSLT14, German to English: talks, the small task that papers compare on.
#
#   recipes/iwslt14.sh DIR [--out DIR] [-- FLAGS OF nmt train]
#
# As usual, every 23rd training pair is the dev set, and dev2010, dev2012 and tst2010 to tst2012 are the test set, lower
# case. fairseq's figures for this model: 34.5 BLEU of Moses tokens (`multi30k`), 33.1 of sacreBLEU (`bleu-lc`). They are
# comparable if the test set has 6,750 sentences, which the recipe checks. Training text has to be cleaned before every
# 23rd pair is taken to be the very same; here it is cleaned after.
#
#   DIR        has train.tags.de-en.de, IWSLT14.TED.tst2010.de-en.de.xml and so on: the archive de-en of 2014-01 on
#              wit3.fbk.eu
#   --out DIR  directory for all results; default runs/iwslt14
#
# Environment: SENTENCES (default 6750) of the test set, to try the recipe on other text.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

read_flags "out ..." "$@"
((${#words[@]} == 1)) || usage_error "give the directory of the files"
out="${out:-$checkout/runs/iwslt14}" sentences="${SENTENCES:-6750}"
# Headings are text, other tags are not.
talks() { text "train.tags.de-en.$1" | sed -E '/<(url|talkid|keywords|speaker|reviewer|translator)/d; s/<[^>]*>//g'; }
segments() {
  local part
  for part in TED.dev2010 TEDX.dev2012 TED.tst2010 TED.tst2011 TED.tst2012; do
    text "IWSLT14.$part.de-en.$1.xml" | sed -nE "s/^ *<seg[^>]*> *(.*[^ ]) *<\/seg>.*/\1/p"
  done | sed "s/’/'/g"
}
[[ -e "$out/text" ]] || {
  mkdir -p "$out/text.part"
  for side in de en; do
    talks "$side" | awk -v name="$out/text.part/train.$side" -v dev="$out/text.part/dev.$side" \
      '{ print >(NR % 23 ? name : dev) }'
    segments "$side" >"$out/text.part/test.$side"
    (($(wc -l <"$out/text.part/test.$side") == sentences)) ||
      die "the test set has $(wc -l <"$out/text.part/test.$side") sentences, not $sentences: $side of another archive"
  done
  mv "$out/text.part" "$out/text"
}
made_from text "${words[@]}"
[[ -e "$out/data" ]] || nmt prepare --source-lang de --target-lang en --train "$out/text/train" --valid "$out/text/dev" \
  --test "$out/text/test" --normalization none --moses --lowercase --max-words 175 --max-ratio 1.5 --keep-duplicates \
  --vocab-size 10000 --out "$out/data"
"$recipes/train.sh" "$out/data" --out "$out/model/run" --preset iwslt14 --seed 1 "${train_flags[@]}"
[[ "$out/model/averaged" -nt "$out/model/run/checkpoints" ]] ||
  nmt average "$out/model/run" --last 5 --out "$out/model/averaged" --overwrite
[[ "$out/model.output" -nt "$out/model/averaged" ]] || to_file "$out/model.output" \
  nmt translate "$out/model/averaged" --input "$out/data/test.source.txt" --beam 5
[[ "$out/model.json" -nt "$out/model.output" ]] || to_file "$out/model.json" nmt score "$out/model.output" \
  --ref "$out/data/test.target.txt" --target-lang en --metric multi30k,bleu-lc --json
to_file "$out/table.md" script tasks/table.py "$out/model" --published multi30k=34.5 bleu-lc=33.1 && cat "$out/table.md"
