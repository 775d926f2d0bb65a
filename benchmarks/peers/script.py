"""A script with CTranslate2, SentencePiece and sacremoses, as a user would write it."""

from __future__ import annotations

import argparse
from pathlib import Path

import ctranslate2
import sentencepiece


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "pieces", "--input", "--output"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--moses", nargs=2, metavar="LANG")
    parser.add_argument("--lowercase", action="store_true")
    options = parser.parse_args()
    lines = options.input.read_text(encoding="utf-8").split("\n")[:-1]
    if options.moses:
        from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

        source, target = options.moses
        normaliser, tokeniser = MosesPunctNormalizer(source), MosesTokenizer(source)
        detokeniser = MosesDetokenizer(target)
        lines = [
            tokeniser.tokenize(normaliser.normalize(line), escape=False, return_str=True)
            for line in lines
        ]
    if options.lowercase:
        lines = [line.lower() for line in lines]
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(options.pieces))
    translator = ctranslate2.Translator(
        str(options.model), inter_threads=options.threads, intra_threads=1
    )
    tokens = pieces.encode(lines, out_type=str)
    # Without it, an output that repeats itself has 256 tokens.
    longest = max(map(len, tokens), default=0) + 50
    results = translator.translate_batch(
        tokens, beam_size=4, length_penalty=0.6, max_batch_size=32, max_decoding_length=longest
    )
    texts = [pieces.decode(result.hypotheses[0]) for result in results]
    if options.moses:
        texts = [detokeniser.detokenize(text.split()) for text in texts]
    options.output.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


if __name__ == "__main__":
    main()
