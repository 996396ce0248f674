"""The models that are measured: what people run, small on a CPU, of real width on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Step = Callable[..., Any]


@dataclass(frozen=True)
class Width:
    """How big a language model is."""

    hidden: int
    inner: int
    layers: int
    heads: int
    groups: int
    vocabulary: int
    length: int  # of the prompt, and of the cache that it leaves

    @property
    def head(self) -> int:
        return self.hidden // self.heads


CPU = Width(256, 688, 4, 8, 4, 2048, 128)
GPU = Width(2048, 5632, 8, 16, 8, 32000, 1024)


class Layer(nn.Module):
    """A layer of Llama: RMSNorm, rotary embedding, grouped heads, SwiGLU."""

    def __init__(self, width: Width) -> None:
        super().__init__()
        self.width = width
        part = width.groups * width.head
        self.before = nn.RMSNorm(width.hidden, eps=1e-5)
        self.qkv = nn.Linear(width.hidden, width.hidden + 2 * part, bias=False)
        self.out = nn.Linear(width.hidden, width.hidden, bias=False)
        self.after = nn.RMSNorm(width.hidden, eps=1e-5)
        self.gate = nn.Linear(width.hidden, width.inner, bias=False)
        self.up = nn.Linear(width.hidden, width.inner, bias=False)
        self.down = nn.Linear(width.inner, width.hidden, bias=False)

    def split(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return queries, keys and values, (batch, heads, length, head)."""
        w, (batch, length, _) = self.width, x.shape
        part = w.groups * w.head
        q, k, v = self.qkv(self.before(x)).split((w.hidden, part, part), -1)
        return (
            q.view(batch, length, w.heads, w.head).transpose(1, 2),
            k.view(batch, length, w.groups, w.head).transpose(1, 2),
            v.view(batch, length, w.groups, w.head).transpose(1, 2),
        )

    def join(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn the halves of each head by the angles of its position."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Llama(nn.Module):
    """A Llama with a cache of fixed size, written in place, as serving code has it."""

    def __init__(self, width: Width) -> None:
        super().__init__()
        self.width = width
        self.embedding = nn.Embedding(width.vocabulary, width.hidden)
        self.layers = nn.ModuleList(Layer(width) for _ in range(width.layers))
        self.norm = nn.RMSNorm(width.hidden, eps=1e-5)
        self.head = nn.Linear(width.hidden, width.vocabulary, bias=False)
        steps = torch.arange(0, width.head, 2) / width.head
        angles = torch.outer(torch.arange(width.length).float(), 10000.0**-steps).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def prefill(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the last position; tokens: (batch, length)."""
        x = self.embedding(tokens)
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        for layer in self.layers:
            q, k, v = layer.split(x)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = layer.join(x, y)
        return self.head(self.norm(x[:, -1]))

    def decode(
        self, token: torch.Tensor, position: torch.Tensor, *caches: torch.Tensor
    ) -> torch.Tensor:
        """Return the logits of one more token.

        Args:
            token: (batch, 1).
            position: (1,), where it stands.
            caches: keys, values of each layer, (batch, groups, length, head), written at position.
        """
        x = self.embedding(token)
        cos, sin = self.cos[position], self.sin[position]
        mask = torch.arange(self.width.length, device=token.device) <= position
        for i, layer in enumerate(self.layers):
            q, k, v = layer.split(x)
            keys, values = caches[2 * i : 2 * i + 2]
            keys.index_copy_(2, position, rotate(k, cos, sin))
            values.index_copy_(2, position, v)
            y = F.scaled_dot_product_attention(
                rotate(q, cos, sin), keys, values, attn_mask=mask[None], enable_gqa=True
            )
            x = layer.join(x, y)
        return self.head(self.norm(x[:, -1]))


class Block(nn.Module):
    """The basic block of ResNet."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.short = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.first(x)))
        return torch.relu(self.norm2(self.second(y)) + self.short(x))


def resnet18(width: int) -> nn.Module:
    """ResNet-18 with `width` channels in its first stage (64 in the paper)."""
    blocks: list[nn.Module] = []
    inside = width
    for stage in range(4):
        outside = width << stage
        blocks += [Block(inside, outside, 1 if stage == 0 else 2), Block(outside, outside, 1)]
        inside = outside
    stem = (nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU())
    pool = nn.MaxPool2d(3, 2, 1)
    return nn.Sequential(
        *stem, pool, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000)
    )


class Logits(nn.Module):
    """A transformers model as a function of one tensor."""

    def __init__(self, kind: str, field: str, **config: Any) -> None:
        super().__init__()
        import transformers

        loaded = getattr(transformers, kind)
        self.model = loaded(loaded.config_class(**config))
        self.field = field

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(given), self.field)


def gpt2(cuda: bool) -> nn.Module:
    """Return GPT-2 in its smallest published size, or a tenth of it."""
    size = {} if cuda else {"n_embd": 256, "n_layer": 4, "n_head": 8, "vocab_size": 2048}
    no_marks = {"bos_token_id": None, "eos_token_id": None}  # theirs lie behind a small vocabulary
    return Logits("GPT2LMHeadModel", "logits", use_cache=False, **no_marks, **size)


def encoder(kind: str, cuda: bool, **config: Any) -> nn.Module:
    """Return BERT or ViT in its base size, or a tenth of it."""
    small = {
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
    }
    return Logits(kind, "last_hidden_state", **({} if cuda else small), **config)


@dataclass(frozen=True)
class Measured:
    """A function to compile and what it is called with.

    Attributes:
        step: takes `args`; in training it returns the loss.
        module: holds the parameters.
        args: tensors on the device.
        training: whether a step is a forward, a backward, and SGD's update.
    """

    step: Step
    module: nn.Module
    args: tuple[torch.Tensor, ...]
    training: bool = False


def _llama(cuda: bool) -> tuple[Llama, torch.Tensor]:
    width = GPU if cuda else CPU
    return Llama(width), torch.randint(0, width.vocabulary, (1, width.length))


def make(name: str, device: str) -> Measured:
    """Make a model of `NAMES` with the same random weights each time: bfloat16 on a GPU, float32 on a CPU."""
    torch.manual_seed(0)
    cuda = device == "cuda"
    dtype = torch.bfloat16 if cuda else torch.float32
    with torch.device(device):
        if name in ("llama prefill", "llama decode"):
            module, tokens = _llama(cuda)
            module.to(dtype).eval()
            if name == "llama prefill":
                return Measured(module.prefill, module, (tokens,))
            w = module.width
            caches = [
                torch.randn(1, w.groups, w.length, w.head, dtype=dtype) for _ in range(2 * w.layers)
            ]
            position = torch.tensor([w.length // 2])
            return Measured(module.decode, module, (tokens[:, :1], position, *caches))
        if name == "gpt2":
            module = gpt2(cuda).to(dtype).eval()
            tokens = torch.randint(0, 2048, (4 if cuda else 1, 512 if cuda else 128))
            return Measured(module, module, (tokens,))
        if name == "bert":
            module = encoder("BertModel", cuda).to(dtype).eval()
            tokens = torch.randint(0, 2048, (8 if cuda else 1, 512 if cuda else 128))
            return Measured(module, module, (tokens,))
        if name == "vit":
            size = {} if cuda else {"image_size": 64, "patch_size": 8}
            module = encoder("ViTModel", cuda, **size).to(dtype).eval()
            side = 224 if cuda else 64
            return Measured(
                module, module, (torch.randn(16 if cuda else 2, 3, side, side, dtype=dtype),)
            )
        if name in ("resnet", "resnet training"):
            module = resnet18(64 if cuda else 16).to(dtype)
            side = 224 if cuda else 64
            pictures = torch.randn(32 if cuda else 4, 3, side, side, dtype=dtype)
            if name == "resnet":
                return Measured(module.eval(), module, (pictures,))
            labels = torch.randint(0, 1000, (len(pictures),))

            def loss(pictures: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
                return F.cross_entropy(module(pictures).float(), labels)

            return Measured(loss, module.train(), (pictures, labels), training=True)
    raise ValueError(f"There is no model {name!r}; there are {', '.join(NAMES)}")


NAMES = ("llama prefill", "llama decode", "gpt2", "bert", "vit", "resnet", "resnet training")
