#!/usr/bin/env bash
# Retrosynthesis, USPTO-50K: a product to its reactants, both in SMILES, without the class of the reaction.
#
#   recipes/tasks/reactions.sh DIR [--seeds N] [--out DIR] [-- FLAGS OF nmt train]
#
# Published (Karpov, Godin and Tetko 2019): 39.8 (top 1), 59.1 and 63.9 (top 3 and 5), trained on the training text only,
# with their own way to count, the last row of the table of a seed. Theirs is a Transformer of 3 layers and 1.9 million
# parameters after 1,000 epochs, and their beam search has a temperature of 1.3. Needs RDKit: pip install rdkit.
#
#   DIR        has retrosynthesis-train.smi and so on: github.com/bigchem/retrosynthesis
#   --seeds N  models (default 1); with several also their ensemble
#
# Environment: STEPS (default 7000) of each training.

source "$(dirname "${BASH_SOURCE[0]}")/task.sh"

read_flags "seeds out ..." "$@"
((${#words[@]} == 1)) || usage_error "give the directory of the files"
"$python" -c "import rdkit" 2>/dev/null || die "RDKit is needed to compare molecules: pip install rdkit"
out="${out:-$checkout/runs/reactions}" measures=top-1,top-3,top-5
train=("${sentences[@]}" --dropout 0.1 --batch-tokens 8192)
translate=(--beam 5 --nbest 5 --format tsv --max-length-offset 200)

table() { text "retrosynthesis-$1.smi" | sed 's/ >> /\t/'; }

for part in train valid test; do table_of "$part" table "$part"; done
data --subwords character --normalization none
systems "${STEPS:-7000}"
((seeds == 1)) || models+=("$out/ensemble-$seeds")
for model in "${models[@]}"; do
  printf '\n%s\n\n' "$(basename "$model")"
  script tasks/reactions.py "$model.output" "$out/data/test.target.txt"
done
