"""A Llama of the transformers library, with its norm, rotary embedding, SwiGLU, attention and loss replaced by ours."""

import copy
from typing import Any

import checks
import pytest
import torch

from torch_mojo import functional as F

STEPS = 3


def make_model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=160,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


def replace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put our functions where the model looks for torch's."""
    from transformers.models.llama import modeling_llama as llama

    def rotary(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        return F.rotary_embedding(q, cos, sin), F.rotary_embedding(k, cos, sin)

    def norm(self: Any, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.variance_epsilon)

    def mlp(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu_mul(self.gate_proj(x), self.up_proj(x)))

    monkeypatch.setattr(llama, "apply_rotary_pos_emb", rotary)
    monkeypatch.setattr(llama.LlamaRMSNorm, "forward", norm)
    monkeypatch.setattr(llama.LlamaMLP, "forward", mlp)
    for name in ("scaled_dot_product_attention", "cross_entropy"):
        monkeypatch.setattr(torch.nn.functional, name, getattr(F, name))


def train(model: Any, ids: torch.Tensor) -> list[float]:
    # Adam would turn the last bit of a gradient that is nearly zero into a step
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("device", checks.DEVICES)
def test_the_same_logits_gradients_and_training(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", reason="needs the transformers library")
    model = make_model().to(device)
    other = copy.deepcopy(model)
    ids = torch.randint(0, 160, (2, 17), generator=torch.Generator().manual_seed(1)).to(device)
    with torch.no_grad():
        wanted = model(input_ids=ids).logits
    losses = train(model, ids)

    replace(monkeypatch)
    with torch.no_grad():
        found = other(input_ids=ids).logits
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        torch.tensor(train(other, ids)), torch.tensor(losses), rtol=1e-4, atol=1e-4
    )
    assert losses[-1] < losses[0]
    for (name, a), b in zip(other.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(
            a.grad, b.grad, rtol=1e-2, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}"
        )
