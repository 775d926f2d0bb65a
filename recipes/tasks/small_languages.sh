#!/usr/bin/env bash
# Small languages: documentation in Latvian, Spanish to Guarani or Bribri, captions in Czech.
#
#   recipes/tasks/small_languages.sh DIR latvian|guarani|bribri|czech [--seeds N] [--out DIR] [-- FLAGS OF nmt train]
#
# Latvian: both directions in one model, by tags. The published Transformer has four languages in one model. Guarani and
# Bribri: the published figures of fairseq's Transformer are of the dev text, as here. Repeated training pairs are
# left out, and one in fifty of the others is for validation. Czech: no figure is published.
#
#   DIR        has lv-en.train.en and so on (github.com/microsoft/CodeXGLUE), train.es, train.gn, dev.es and so on
#              (github.com/AmericasNLP/americasnlp2021), or the files of github.com/multi30k/dataset
#   --seeds N  models (default 1); with several also their ensemble
#
# Environment: STEPS (default 3000) of each training, PIECES (default 8000).

source "$(dirname "${BASH_SOURCE[0]}")/task.sh"

read_flags "seeds out ..." "$@"
task="${words[1]-}" tags=() published=() measures=bleu,chrf
out="${out:-$checkout/runs/$task}"
train=("${sentences[@]}" --batch-tokens 4096)
translate=(--max-length-offset 200)

both() { pairs "$1.en" "$1.lv" | sed 's/$/\t2lv/' && pairs "$1.lv" "$1.en" | sed 's/$/\t2en/'; }
spanish() { pairs "$1.es" "$1.$language" | awk "$2"; }

case "$task" in
  latvian)
    for part in train dev test; do table_of "${part/dev/valid}" both "lv-en.$part"; done
    to_file "$out/labels" cut -f 3 "$out/test.tsv"
    tags=(--tags 3) measures=codexglue published=("codexglue, 2lv=37.85" "codexglue, 2en=50.37")
    ;;
  guarani | bribri)
    language=gn published=(bleu=3.26 chrf=22.0)
    [[ "$task" == guarani ]] || language=bzd published=(bleu=0.54 chrf=7.7)
    table_of train spanish train "!seen[\$0]++ && ++n % 50"
    table_of valid spanish train "!seen[\$0]++ && ++n % 50 == 0"
    table_of test spanish dev 1
    ;;
  czech)
    table_of train pairs train.en train.cs && table_of valid pairs val.en val.cs
    table_of test pairs test_2016_flickr.en test_2016_flickr.cs
    ;;
  *) usage_error "give the directory of the files and one of latvian, guarani, bribri and czech" ;;
esac
data "${tags[@]}" --subwords bpe --vocab-size "${PIECES:-8000}" --normalization none
systems "${STEPS:-3000}" "${published[@]}"
