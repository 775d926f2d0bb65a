"""Files of other programs that claim more memory than they have bytes, and unknown settings."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.annexes.exchange.importing.checks import (
    float_weights,
    is_language,
    our_settings,
    saved_objects,
)
from nmt_cli.errors import CheckpointError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    torch.save({"model": {"a": torch.ones(4)}}, tmp_path / "model.pt")
    return tmp_path / "model.pt"


@pytest.mark.parametrize("zipped", [True, False])
def test_what_torch_saves_is_read(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "model.pt"
    torch.save({"a": torch.ones(4)}, path, _use_new_zipfile_serialization=zipped)
    assert saved_objects(path)["a"].tolist() == [1.0] * 4


def test_compressed_parts_are_refused_before_they_are_read(model: Path) -> None:
    with zipfile.ZipFile(model, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/data/9", bytes(1 << 20))
    with pytest.raises(CheckpointError, match="when unpacked"):
        saved_objects(model)


def test_parts_that_lie_over_each_other_are_refused(model: Path) -> None:
    with zipfile.ZipFile(model, "a") as archive:
        archive.filelist += 20 * [max(archive.filelist, key=lambda part: part.file_size)]
        archive._didModify = True  # type: ignore[attr-defined]
    with pytest.raises(CheckpointError, match="when unpacked"):
        saved_objects(model)


@pytest.mark.parametrize("zipped", [True, False])
def test_bytes_without_content_are_refused(tmp_path: Path, zipped: bool) -> None:
    class Zeros:
        def __reduce__(self) -> Any:
            return bytearray, (1 << 30,)

    path = tmp_path / "model.pt"
    torch.save({"a": Zeros()}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match="bytearray"):
        saved_objects(path)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(1).expand(10, 10**9),
        torch.zeros(10**9, 0),
        torch.ones(2, 2).to_sparse(),
        torch.zeros(2, 2, device="meta"),
        torch.zeros(2, 2, dtype=torch.int8),
        torch.zeros(2, 2, dtype=torch.complex64),
    ],
    ids=["repeated", "no width", "sparse", "meta", "integers", "complex"],
)
def test_weights_are_plain_tensors_of_the_files_size(model: Path, tensor: torch.Tensor) -> None:
    with pytest.raises(CheckpointError, match=f"^{model}: ") as caught:
        float_weights({"a": torch.ones(4), "b": tensor}, model)
    assert len(str(caught.value)) < len(str(model)) + 100


def test_weights_become_float32(model: Path) -> None:
    weights = float_weights({"a": torch.ones(4, dtype=torch.float16)}, model)
    assert (weights["a"].dtype, weights["a"].tolist()) == (torch.float32, [1.0] * 4)


KNOWN = {
    "values": {"act": ["relu", "gelu", None], "scale": [True]},
    "off": ["gate"],
    "any": ["heads", "layers", "decoder_layers"],
    "settings": {"num_layers": ["layers", "decoder_layers"]},
    "defaults": {"num_layers": 6},
}


def test_a_setting_of_encoder_and_decoder_is_one_of_ours() -> None:
    def layers(**settings: Any) -> dict[str, Any]:
        return our_settings({"scale": True, **settings}, KNOWN, Path("model.pt"))

    assert layers(layers=3, decoder_layers=3) == {"num_layers": 3}
    assert layers(decoder_layers=None) == {"num_layers": 6}
    with pytest.raises(CheckpointError, match=r"^model.pt: .*decoder_layers.*\[3, 6\]$"):
        layers(layers=3)


@pytest.mark.parametrize("value", [None, False, 0, 0.0, "", []])
def test_a_setting_that_is_off_is_supported(value: Any) -> None:
    assert our_settings({"scale": True, "gate": value}, KNOWN, Path("model.pt")) == {
        "num_layers": 6
    }


def test_other_settings_are_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match=r"^model.pt: .* gate .*True.*False$"):
        our_settings({"scale": True, "gate": True}, KNOWN, Path("model.pt"))
    with pytest.raises(CheckpointError, match=r"act is 'silu'.*'relu' or 'gelu'$"):
        our_settings({"scale": True, "act": "silu"}, KNOWN, Path("model.pt"))
    with pytest.raises(CheckpointError, match="its scale is None, expected True"):
        our_settings({}, KNOWN, Path("model.pt"))


def test_unknown_settings_of_a_model_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {
        "gate": False,
        "new_attention": True,
        "new_norm": 0,
        "learning_rate": 1,
        "heads": 2,
        "layer": 3,
    }
    our_settings({"scale": True, **settings}, KNOWN, Path("model.pt"), others=["layer"])
    assert capsys.readouterr().err.endswith("does not use: ['new_attention']\n")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[(name, True) for name in ("de", "zh_CN", "sr@latin", "pt-BR", "中文", "v1.0")],
        *[
            (name, False)
            for name in (
                "",
                "..",
                ".de",
                "a/b",
                "x/../../s",
                "/etc",
                "a\0",
                "a\n",
                "\x1b",
                "a" * 50,
                None,
            )
        ],
        (["de"], False),
    ],
)
def test_names_of_languages(value: Any, expected: bool) -> None:
    assert is_language(value) is expected


def test_messages_of_torch_are_cut(
    nmt: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nmt_cli.annexes.exchange.fairseq import reading

    def fail(*_: Any) -> None:
        raise RuntimeError("Could not run 'aten::slice'\n" * 200)

    monkeypatch.setattr(reading, "read", fail)
    torch.save({"model": {}, "args": None}, tmp_path / "model.pt")
    code, _, err = nmt("import", tmp_path / "model.pt", "--out", tmp_path / "out")
    assert code == 1
    assert "RuntimeError" in err
    assert len(err.splitlines()) == 1
    assert len(err) < 400
