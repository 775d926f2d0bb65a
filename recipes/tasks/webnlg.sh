#!/usr/bin/env bash
# WebNLG 2017: triples of a knowledge base to English text, such as <TRIPLE> Aarhus_Airport cityServed "Aarhus,_Denmark"
# </TRIPLE> to "Aarhus Airport serves the city of Aarhus, Denmark."
#
#   recipes/tasks/webnlg.sh DIR [--seeds N] [--out DIR] [-- FLAGS OF nmt train]
#
# Published (Castro Ferreira et al. 2019, end to end): Transformer, and RNN, an ensemble of three. The figures here are
# of their outputs by this BLEU, bleu-lc, with all references; by tokens of NLTK they are 50.79 and 57.20 for domains
# that occur in training. With words as units, models cannot read other domains.
#
#   DIR        has train.src, train.trg and so on: github.com/ThiagoCF05/DeepNLG, evaluation/data/end2end
#   --seeds N  models (default 3); with several also their ensemble
#
# Environment: STEPS (default 2000) of each training, UNITS (default none: words) for --subwords.

source "$(dirname "${BASH_SOURCE[0]}")/task.sh"

seeds=3
read_flags "seeds out ..." "$@"
((${#words[@]} == 1)) || usage_error "give the directory of the files"
PIECES="${UNITS:-none}" out="${out:-$checkout/runs/webnlg-$PIECES}" measures=bleu-lc
train=("${sentences[@]}" --dropout 0.3 --batch-tokens 2048)
finish() { script tasks/webnlg.py detokenize; }

made_from "" "${words[@]}" "$PIECES"
[[ -e "$out/labels" ]] || script tasks/webnlg.py "${words[0]}" "$out"
references=("$out"/references/*)
data --subwords "$PIECES" --separate-vocabularies --normalization none
systems "${STEPS:-2000}" "bleu-lc, seen=58.02" "bleu-lc=33.68"
echo "Published, Transformer: 32.60, of seen domains 51.65"
