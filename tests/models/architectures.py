"""About twenty architectures with few, random weights: what people compile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Inputs = tuple[torch.Tensor, ...]


class Plain(nn.Module):
    """A transformers model that takes tensors and returns one."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], result: str) -> None:
        super().__init__()
        self.model = model
        self.names = names
        self.result = result

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(**dict(zip(self.names, values, strict=True))), self.result)


class Block(nn.Module):
    """ResNet's basic block."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.short = nn.Sequential()
        if stride != 1 or inside != outside:
            self.short = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.first(x)))
        return torch.relu(self.norm2(self.second(y)) + self.short(x))


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        Block(8, 8, 1),
        Block(8, 16, 2),
        Block(16, 32, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


class Dense(nn.Module):
    """A layer of DenseNet: its result joins its input."""

    def __init__(self, inside: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(inside), nn.ReLU(), nn.Conv2d(inside, growth, 3, 1, 1, bias=False)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat((x, self.layers(x)), 1)


def densenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1),
        Dense(8, 4),
        Dense(12, 4),
        nn.Conv2d(16, 8, 1),
        nn.AvgPool2d(2),
        Dense(8, 4),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 10),
    )


class Inverted(nn.Module):
    """MobileNet's inverted residual, with EfficientNet's squeeze and excitation."""

    def __init__(self, channels: int, squeeze: bool) -> None:
        super().__init__()
        wide = 4 * channels
        act = nn.SiLU if squeeze else nn.Hardswish
        self.expand = nn.Sequential(nn.Conv2d(channels, wide, 1), nn.BatchNorm2d(wide), act())
        self.depth = nn.Sequential(
            nn.Conv2d(wide, wide, 3, 1, 1, groups=wide), nn.BatchNorm2d(wide), act()
        )
        self.gate = None
        if squeeze:
            self.gate = nn.Sequential(
                nn.AdaptiveAvgPool2d(1),
                nn.Conv2d(wide, 4, 1),
                nn.SiLU(),
                nn.Conv2d(4, wide, 1),
                nn.Sigmoid(),
            )
        self.project = nn.Sequential(nn.Conv2d(wide, channels, 1), nn.BatchNorm2d(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depth(self.expand(x))
        if self.gate is not None:
            y = y * self.gate(y)
        return x + self.project(y)


def mobilenet(squeeze: bool = False) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        Inverted(8, squeeze),
        Inverted(8, squeeze),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(8, 10),
    )


class UNet(nn.Module):
    """Down, up, and a bridge between them."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.middle = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.SiLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.smooth = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.MaxPool2d(2))
        self.end = nn.Conv2d(16, 4, 3, padding=1, padding_mode="reflect")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down(x)
        b = self.smooth(self.up(self.middle(a)))
        return self.end(torch.cat((a, b), 1))


def _hugging(kind: str, config: dict[str, Any], names: tuple[str, ...], result: str) -> nn.Module:
    import transformers

    loaded = getattr(transformers, kind)
    return Plain(loaded(loaded.config_class(**config)), names, result)


SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 97,
    "max_position_embeddings": 64,
}
GROUPED = SMALL | {"num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0, "use_cache": False}


def tokens(batch: int, length: int) -> Inputs:
    return (torch.randint(1, 96, (batch, length)),)


def pictures(size: int) -> Callable[[int, int], Inputs]:
    return lambda batch, _: (torch.randn(batch, 3, size, size),)


@dataclass(frozen=True)
class Architecture:
    """A model to be.

    Attributes:
        make: makes the module.
        inputs: example inputs, of a batch size and a length.
        lengths: whether the length may change.
        trains: whether it is one of those trained for ten steps.
        quick: whether the quick suite has it.
        graphs: how many graphs torch makes of three sizes at most.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[[int, int], Inputs]
    lengths: bool = False
    trains: bool = False
    quick: bool = False
    graphs: int = 1


def _causal(kind: str, config: dict[str, Any]) -> Callable[[], nn.Module]:
    return lambda: _hugging(kind, config, ("input_ids",), "logits")


def _vision(kind: str, config: dict[str, Any]) -> Callable[[], nn.Module]:
    return lambda: _hugging(kind, config, ("pixel_values",), "last_hidden_state")


def _features(batch: int, _: int) -> Inputs:
    return torch.randn(batch, 16, 64), torch.randint(1, 96, (batch, 7))


def _pairs(batch: int, length: int) -> Inputs:
    return torch.randint(1, 96, (batch, length)), torch.randint(1, 96, (batch, length + 1))


def _captions(batch: int, _: int) -> Inputs:
    return torch.randint(1, 96, (batch, 9)), torch.randn(batch, 3, 32, 32)


CLIP = {
    "text_config": SMALL | {"eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0},
    "vision_config": {
        k: v for k, v in SMALL.items() if k not in ("vocab_size", "max_position_embeddings")
    }
    | {"image_size": 32, "patch_size": 8},
    "projection_dim": 16,
}
WHISPER = {
    "vocab_size": 97,
    "num_mel_bins": 16,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_source_positions": 32,
    "max_target_positions": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "use_cache": False,
}
T5 = {
    "vocab_size": 97,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "use_cache": False,
    "decoder_start_token_id": 0,
}
VIT = {k: v for k, v in SMALL.items() if k not in ("vocab_size", "max_position_embeddings")} | {
    "image_size": 32,
    "patch_size": 8,
}
GPT2 = {
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "vocab_size": 97,
    "n_positions": 64,
    "use_cache": False,
}
MAMBA = {
    "vocab_size": 97,
    "hidden_size": 32,
    "state_size": 4,
    "num_hidden_layers": 2,
    "use_cache": False,
}
SWIN = {
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 8,
    "depths": [1, 1],
    "num_heads": [2, 4],
    "window_size": 4,
}
CONVNEXT = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 16, 16]}

ARCHITECTURES: dict[str, Architecture] = {
    "resnet": Architecture(resnet, pictures(32), trains=True),
    "densenet": Architecture(densenet, pictures(16)),
    "mobilenet": Architecture(mobilenet, pictures(16)),
    "efficientnet": Architecture(lambda: mobilenet(squeeze=True), pictures(16)),
    "unet": Architecture(UNet, pictures(16), trains=True),
    "convnext": Architecture(_vision("ConvNextModel", CONVNEXT), pictures(32)),
    "swin": Architecture(_vision("SwinModel", SWIN), pictures(32)),
    "vit": Architecture(_vision("ViTModel", VIT), pictures(32), trains=True),
    "gpt2": Architecture(_causal("GPT2LMHeadModel", GPT2), tokens, lengths=True, trains=True),
    "llama": Architecture(
        _causal("LlamaForCausalLM", GROUPED), tokens, lengths=True, trains=True, quick=True
    ),
    "qwen": Architecture(_causal("Qwen3ForCausalLM", GROUPED), tokens, lengths=True),
    "gemma": Architecture(_causal("Gemma2ForCausalLM", GROUPED), tokens, lengths=True),
    "mistral": Architecture(
        _causal("MistralForCausalLM", GROUPED | {"sliding_window": 4}), tokens, lengths=True
    ),
    "phi": Architecture(
        _causal("PhiForCausalLM", SMALL | {"use_cache": False}), tokens, lengths=True
    ),
    "mixtral": Architecture(
        _causal("MixtralForCausalLM", GROUPED | {"num_local_experts": 4}), tokens, lengths=True
    ),
    # its scan halves the length until one is left, and asks each time whether it is even
    "mamba": Architecture(_causal("MambaForCausalLM", MAMBA), tokens, graphs=3),
    "bert": Architecture(
        lambda: _hugging("BertModel", SMALL, ("input_ids",), "last_hidden_state"),
        tokens,
        lengths=True,
    ),
    "t5": Architecture(
        lambda: _hugging(
            "T5ForConditionalGeneration", T5, ("input_ids", "decoder_input_ids"), "logits"
        ),
        _pairs,
        lengths=True,
    ),
    "whisper": Architecture(
        lambda: _hugging(
            "WhisperForConditionalGeneration",
            WHISPER,
            ("input_features", "decoder_input_ids"),
            "logits",
        ),
        _features,
    ),
    "clip": Architecture(
        lambda: _hugging("CLIPModel", CLIP, ("input_ids", "pixel_values"), "logits_per_image"),
        _captions,
    ),
}


def model(name: str) -> nn.Module:
    """Make a model with weights that are the same each time."""
    torch.manual_seed(0)
    return ARCHITECTURES[name].make()
