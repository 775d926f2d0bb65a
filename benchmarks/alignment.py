"""Error rates of word alignments by attention, by layer and head, against a statistical aligner.

    python -m benchmarks.alignment CHECKPOINT TRAIN TEST

TRAIN and TEST are prefixes of parallel text, as for `nmt prepare`. The statistical alignments are
eflomal's in sil-thot (`pip install sil-thot`), in both directions, joined by grow-diag-final-and.
They are no gold. Words are Moses' tokens in lower case. A row of weights is of the token that the
decoder predicts there, or of the one that it reads.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any, cast

import torch
from thot.alignment import EflomalAlignmentModel, SymmetrizationHeuristic, SymmetrizedAligner

from nmt_cli.annexes.around.attention import links_of
from nmt_cli.checkpoint import locate
from nmt_cli.data.moses import Moses
from nmt_cli.interfaces import BOS, EOS
from nmt_cli.weights import load_model


def trained(sources: list[list[str]], targets: list[list[str]]) -> Any:
    model = EflomalAlignmentModel()
    for pair in zip(sources, targets, strict=True):
        model.add_sentence_pair(*pair, 1)
    model.start_training()
    for _ in range(5):
        model.train()
    model.end_training()
    return model


def main(checkpoint: str, train: str, test: str) -> None:
    model, task = cast(Any, load_model(locate(Path(checkpoint)), torch.device("cpu")))
    moses = [Moses(language) for language in task.languages]
    pairs = [pair[:2] for prefix in (test, train) for pair in task.read(prefix)]
    lines = [[moses[side].tokenise(pair[side]).lower() for side in (0, 1)] for pair in pairs]
    words: Any = [[line[side].split() for line in lines] for side in (0, 1)]
    statistical = SymmetrizedAligner(trained(*words), trained(*words[::-1]))
    statistical.heuristic = SymmetrizationHeuristic.GROW_DIAG_FINAL_AND
    common, links = Counter[tuple[Any, ...]](), Counter[tuple[Any, ...]]()
    for number, _ in enumerate(task.read(test)):
        (source, target), (s, t) = lines[number], (side[number] for side in words)
        matrix = statistical.get_best_alignment(s, t)[1]
        expected = {(i, j) for i in range(len(s)) for j in range(len(t)) if matrix[i, j]}
        ids, written = task.encode_source(source), task.encode_target(target)
        rows = torch.tensor([[*ids, EOS]]), torch.tensor([[BOS, *written]])
        cross = model.attention_weights(*rows)["cross"][0, ..., :-1]  # [layers, H, T + 1, S]
        pieces = task.source_tokens(ids), task.target_tokens(written)
        for layer, heads in enumerate(torch.cat([cross.mean(1, keepdim=True), cross], 1), 1):
            for head, weights in enumerate(heads):
                for row, row_weights in (("predicted", weights[:-1]), ("read", weights[1:])):
                    predicted_links = links_of(row_weights, *pieces, source, target)
                    key = (layer, head or "mean", row)
                    common[key] += len(expected.intersection(predicted_links))
                    links[key] += len(predicted_links) + len(expected)
    for key, count in links.items():
        print(*key, f"{100 - 200 * common[key] / count:.1f}", sep="\t")


if __name__ == "__main__":
    main(*sys.argv[1:])
