"""Hugging Face transformers: `generate` of MarianMTModel."""

from __future__ import annotations

import torch
import transformers
from transformers import MarianConfig, MarianMTModel

from benchmarks.peers.serve import Ids, Setup, Size, System, serve
from benchmarks.peers.weights import fairseq_layers, read, sinusoids

PAD, UNK, BOS, EOS = 0, 1, 2, 3
POSITIONS = 1024


def build(setup: Setup) -> System:
    torch.set_num_threads(setup.cores)
    model = MarianMTModel(config_of(setup)).eval()
    weights = read(setup.checkpoint)
    embedding, positions = weights["target_embedding.weight"], sinusoids(POSITIONS, setup.width)
    arrays = {f"model.{name}": array for name, array in fairseq_layers(weights)}
    arrays |= {f"model.{side}.embed_positions.weight": positions for side in ("encoder", "decoder")}
    arrays |= {
        name: embedding
        for name in model.state_dict()
        if name.endswith(("shared.weight", "embed_tokens.weight"))
    }
    arrays["lm_head.weight"] = embedding
    arrays["final_logits_bias"] = model.final_logits_bias.numpy()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    model = model.to(setup.device, getattr(torch, setup.dtype))

    def translate(sources: Ids) -> Ids:
        width = max(map(len, sources)) + 1
        source = torch.tensor([[*row, EOS] + [PAD] * (width - 1 - len(row)) for row in sources])
        source = source.to(setup.device)
        with torch.inference_mode():
            outputs = model.generate(
                input_ids=source,
                attention_mask=(source != PAD).long(),
                num_beams=setup.beam,
                length_penalty=setup.alpha,
                min_new_tokens=setup.steps,
                max_new_tokens=setup.steps,
                do_sample=False,
            )
        rows: Ids = outputs[:, 1:].tolist()  # without BOS
        return rows

    return System(f"{transformers.__version__}, torch {torch.__version__}", translate)


def config_of(size: Size) -> MarianConfig:
    """Return the configuration of the paper's model of this size.

    Its dropout of 0.1 is the default.
    """
    return MarianConfig(
        vocab_size=size.vocabulary,
        d_model=size.width,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        encoder_ffn_dim=size.inner,
        decoder_ffn_dim=size.inner,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        activation_function="relu",
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        max_position_embeddings=POSITIONS,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
    )


if __name__ == "__main__":
    serve(build, ("float32", "bfloat16"), divided=True)
