#!/usr/bin/env bash
# Java to C# and back, method by method (CodeXGLUE).
#
#   recipes/tasks/code.sh DIR java-cs|cs-java [--seeds N] [--out DIR] [-- FLAGS OF nmt train]
#
# Published: the Transformer trained from scratch. Its figures belong to older references, of which seven lines on each
# side were corrected later: differences of 0.1 BLEU mean nothing. The BLEU is not sacreBLEU's: see docs/score.md.
#
#   DIR        has train.java-cs.txt.java and so on: github.com/microsoft/CodeXGLUE, code-to-code-trans/data
#   --seeds N  models (default 1); with several also their ensemble
#
# Environment: STEPS (default 4000) of each training, PIECES (default 4000).

source "$(dirname "${BASH_SOURCE[0]}")/task.sh"

read_flags "seeds out ..." "$@"
direction="${words[1]-}" measures=codexglue,exact
case "$direction" in
  java-cs) published=(codexglue=55.84 exact=33.0) ;;
  cs-java) published=(codexglue=50.47 exact=37.9) ;;
  *) usage_error "give the directory of the files, and java-cs or cs-java" ;;
esac
out="${out:-$checkout/runs/code-$direction}"
train=("${sentences[@]}" --dropout 0.2 --batch-tokens 4096)
translate=(--max-length-offset 200)

for part in train valid test; do
  table_of "$part" pairs "$part.java-cs.txt.${direction%-*}" "$part.java-cs.txt.${direction#*-}"
done
data --subwords bpe --vocab-size "${PIECES:-4000}" --normalization none
systems "${STEPS:-4000}" "${published[@]}"
