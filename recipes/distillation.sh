#!/usr/bin/env bash
# A small and fast student of large teachers, on the captions of Multi30k, English to German.
#
#   recipes/distillation.sh DIR [--out DIR] [-- FLAGS OF nmt train]
#
# Sequence-level knowledge distillation (Kim and Rush 2016): the student is trained on what the teacher, by beam search,
# makes of the training sources. The teacher is an ensemble of two Transformers of 4 + 4 layers. The student has 6
# layers in its encoder and 1 in its decoder (Kasai et al. 2021), and greedy search. The same student is trained on the
# original text, too. All have one vocabulary of 8,000 BPE pieces over cased text, and d_model 128. Not as in the paper:
# rotary positions, Muon and sub-layers that begin at zero, with which one layer learns to attend to the source. Takes
# an hour or two on a CPU. Ends with a table of expected and actual figures. Run it again to continue after a stop.
# Sentences a second are of one core, which should do nothing else meanwhile.
#
#   DIR             has train, val and test_2016_flickr, each .en and .de, plain or .gz
#   --out DIR       directory for all results; default runs/distillation
#
# Environment: TEACHERS (default 2), PIECES (8000), STEPS (2000) of a teacher, and STUDENT_STEPS (3000).

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

read_flags "out ..." "$@"
((${#words[@]} == 1)) || usage_error "give the directory of the Multi30k files"
text="${words[0]}" out="${out:-$checkout/runs/distillation}"
steps="${STEPS:-2000}" student_steps="${STUDENT_STEPS:-3000}" teachers=() number="${TEACHERS:-2}"
export PROCESSES="${PROCESSES:-1}"
train=("${captions[@]}" --dropout 0.2)
student=(--num-layers 6 --num-decoder-layers 1 --seed 1)

# parameters PART MODEL...: millions of parameters whose names begin with PART.
parameters() {
  PYTHONPATH="$recipes" "$python" -c 'import pathlib, report, sys
counts = (report.count_parameters(pathlib.Path(model, "model.safetensors"), sys.argv[1]) for model in sys.argv[2:])
print(f"{sum(counts) / 1e6:.2f}")' "$@"
}
# row NAME BEAM EXPECTED-BLEU EXPECTED-SPEED MODEL...: translate the test set on one core; a row of the table.
row() {
  local bleu speed
  OMP_NUM_THREADS=1 with_log "$out/$1.log" nmt translate "${@:5}" --input "$out/data/test.source.txt" --beam "$2" \
    --workers 1 --output "$out/$1.de"
  bleu="$(nmt score "$out/$1.de" --ref "$out/data/test.target.txt" --metric bleu | awk '{ print $2 }')"
  speed="$(sed -n 's|.*: \([0-9.,]*\) sentences/s.*|\1|p' "$out/$1.log")"
  printf '| %s ' "$1" "$(parameters '' "${@:5}")" "$(parameters decoder "${@:5}")" "$2" "$3" "$bleu" "$4" "${speed//,/}"
  echo '|'
}

[[ -e "$out/data" ]] || nmt prepare --source-lang en --target-lang de --train "$text/train" --valid "$text/val" \
  --test "$text/test_2016_flickr" --vocab-size "${PIECES:-8000}" --out "$out/data"
made_from data "$text" "$number teachers" "${PIECES:-8000} pieces"
for ((seed = 1; seed <= number; seed++)); do
  train_and_average "$out/data" "$out/teacher-$seed" "$steps" --seed "$seed"
  teachers+=("$out/teacher-$seed/averaged")
done
distilled="$out/distilled/text.de"
[[ -e "$distilled" ]] || to_file "$distilled" nmt translate "${teachers[@]}" --input "$(file_of train.en)" --beam 4
[[ -e "$out/distilled/data" ]] || nmt prepare --source-lang en --target-lang de --train-source "$(file_of train.en)" \
  --train-target "$distilled" --valid "$text/val" --subwords-from "$out/data" --out "$out/distilled/data"
train_and_average "$out/data" "$out/student-original" "$student_steps" "${student[@]}"
train_and_average "$out/distilled/data" "$out/student-distilled" "$student_steps" "${student[@]}"

{
  echo '| model | million parameters | in the decoder | beam | BLEU, expected | got | sentences/s, expected | got |'
  echo '|---|---:|---:|---:|---:|---:|---:|---:|'
  row teachers 4 38.24 34 "${teachers[@]}"
  row teacher-1 4 38.13 77 "${teachers[0]}"
  row student-original 1 36.38 347 "$out/student-original/averaged"
  row student-distilled 1 37.23 447 "$out/student-distilled/averaged"
} >"$out/table.md"
awk -F '|' '
  $2 ~ /^ teachers/ { bleu = $7; speed = $9 }
  $2 ~ /distilled/ { printf "\nExpected of student-distilled: at most 1.3 BLEU less than the teachers, and at least "
    printf "10 times as fast.\nGot: %.2f less, and %.1f times as fast.\n", bleu - $7, $9 / speed }
' "$out/table.md" >"$out/goal"
cat "$out/table.md" "$out/goal"
