"""The model in torch: the gpt-oss architecture over packs that share one prefix.

A pack is one prefix (system and developer message) and several conversations that each see that
prefix and themselves. The prefix is computed once however many conversations follow, and the
last layer computes queries, experts and logits only where there is a loss: most of a conversation
is context, so this is several times cheaper than one conversation a row.

Both experts are always selected (expert_used_count = expert_count), so that the mixture is one
wide feed-forward layer whose halves are weighted by the router.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.tiny import embedding_rows
from agent.tiny.train import packing

LOGIT_SCALE = 3.0
"""All logits are multiplied by this: one answer is right, so sampling at 1.0 should find it too."""
ATTENTION_TENSORS = (("q", "attn_q"), ("k", "attn_k"), ("v", "attn_v"), ("o", "attn_output"))
"""A layer's attention matrices by their names here and in the file."""


@dataclass(frozen=True)
class Shape:
    """Dimensions and the constants of gpt-oss that the file's metadata repeats."""

    dim: int = embedding_rows.EMBEDDING_DIMS
    layers: int = 4
    heads: int = 4
    head_dim: int = 64
    experts: int = 2
    expert_dim: int = 256
    window: int = 128
    epsilon: float = 1e-5
    rope_base: float = 150_000.0
    rope_factor: float = 32.0
    rope_original: int = 4096
    rope_context: int = 131_072

    def as_dict(self) -> dict[str, Any]:
        """The fields as the core's header has them."""
        return asdict(self)


@dataclass
class Pack:
    """A batch of B packs: tensors on one device.

    prefix (B, P) ids, padded on the left; prefix_length (B,); segments (B, N, S) ids, padded on
    the right; loss_at (B, N, L) index of the token that predicts, weight (B, N, L) of its target
    (0 for padding), target (B, N, L).
    """

    prefix: Tensor
    prefix_length: Tensor
    segments: Tensor
    loss_at: Tensor
    target: Tensor
    weight: Tensor

    def to(self, device: torch.device) -> Pack:
        """Move all tensors to a device."""
        return Pack(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


def rope_table(shape: Shape, length: int) -> tuple[Tensor, Tensor]:
    """cos and sin, (length, head_dim/2), of YaRN as llama.cpp computes it."""
    half = shape.head_dim // 2
    pair = torch.arange(half, dtype=torch.float64)
    freq = shape.rope_base ** (-pair / half)

    def correction(beta: float) -> float:
        ratio = shape.rope_original / (beta * 2 * math.pi)
        return shape.head_dim * math.log(ratio) / (2 * math.log(shape.rope_base))

    low = max(0.0, math.floor(correction(32.0)))
    high = min(shape.head_dim - 1.0, math.ceil(correction(1.0)))
    ramp = 1 - ((pair - low) / max(0.001, high - low)).clamp(0, 1)
    theta = torch.arange(length, dtype=torch.float64)[:, None] * (
        freq / shape.rope_factor * (1 - ramp) + freq * ramp
    )
    scale = 1 + 0.1 * math.log(shape.rope_factor)
    return (theta.cos() * scale).float(), (theta.sin() * scale).float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """NEOX rotation of (…, heads, head_dim) by (…, 1, head_dim/2)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def fake_q4(x: Tensor) -> Tensor:
    """Rows as Q4_0 will hold them (blocks of 32, levels -7 … 7), gradient passed through."""
    blocks = x.reshape(-1, 32)
    step = (blocks.abs().amax(dim=1, keepdim=True) / 7).half().float().clamp(min=1e-7)
    quantised = ((blocks / step).round().clamp(-7, 7) * step).reshape(x.shape)
    return x + (quantised - x).detach()


class TransformerLayer(nn.Module):
    """One block's parameters, named as in the file."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        d, wide = shape.dim, shape.heads * shape.head_dim
        hidden = shape.experts * shape.expert_dim

        def matrix(rows_: int, columns: int, gain: float = 1.0) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows_, columns) * gain / math.sqrt(columns))

        self.attn_norm = nn.Parameter(torch.ones(d))
        self.q = matrix(wide, d, 0.5)
        self.k = matrix(wide, d, 0.5)
        self.v = matrix(wide, d, 0.5)
        self.o = matrix(d, wide, 0.1)
        self.q_bias = nn.Parameter(torch.zeros(wide))
        self.k_bias = nn.Parameter(torch.zeros(wide))
        self.v_bias = nn.Parameter(torch.zeros(wide))
        self.o_bias = nn.Parameter(torch.zeros(d))
        self.sinks = nn.Parameter(torch.zeros(shape.heads))
        self.ffn_norm = nn.Parameter(torch.ones(d))
        self.router = matrix(shape.experts, d, 0.1)
        self.router_bias = nn.Parameter(torch.zeros(shape.experts))
        self.gate = matrix(hidden, d)
        self.up = matrix(hidden, d)
        self.down = matrix(d, hidden, 0.1)
        self.gate_bias = nn.Parameter(torch.zeros(hidden))
        self.up_bias = nn.Parameter(torch.zeros(hidden))
        self.down_bias = nn.Parameter(torch.zeros(shape.experts, d))


class Tiny(nn.Module):
    """The whole model; `forward` returns the final hidden state at the loss positions."""

    def __init__(self, shape: Shape, trained: np.ndarray[Any, Any], full: np.ndarray[Any, Any]):
        """`trained`: ids with rows of their own; `full` (bool): all 256 dims, else the free 96."""
        super().__init__()
        self.shape = shape
        self.blocks = nn.ModuleList(TransformerLayer(shape) for _ in range(shape.layers))
        self.output_norm = nn.Parameter(torch.full((shape.dim,), 4.0))
        count = len(trained)
        self.delta_in = nn.Parameter(torch.zeros(count, shape.dim))
        self.delta_out = nn.Parameter(torch.zeros(count, shape.dim))
        free = torch.zeros(count, shape.dim)
        free[:, embedding_rows.IDENTITY_DIMS :] = 1
        free[torch.from_numpy(full)] = 1
        self.register_buffer("free", free, persistent=False)
        self.register_buffer("trained", torch.from_numpy(trained).long(), persistent=False)
        table = torch.from_numpy(packing.embedding_table())
        self.register_buffer("table", table.to(torch.bfloat16), persistent=False)
        where = torch.full((len(table),), count, dtype=torch.long)
        where[self.trained] = torch.arange(count)
        self.register_buffer("where", where, persistent=False)
        cos, sin = rope_table(shape, 4096)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.dtype = torch.bfloat16
        self.set_by_hand()

    # -- rows ---------------------------------------------------------------------------------

    def input_rows(self) -> Tensor:
        """The trained input rows as the file holds them, (T, 256)."""
        return fake_q4(self.table[self.trained].float() + self.delta_in * self.free)

    def output_rows(self) -> Tensor:
        """The trained output rows as the file holds them, (T, 256)."""
        row = self.table[self.trained].float() + self.delta_out * self.free
        return fake_q4(
            row.roll(embedding_rows.OUTPUT_ROLL_DIMS, dims=1) * embedding_rows.OUTPUT_SCALE
        )

    def structured_rows(self) -> tuple[Tensor, Tensor]:
        """The rows that the trained tokens have without training, in and out, both (T, 256)."""
        base = self.table[self.trained].float()
        rolled = base.roll(embedding_rows.OUTPUT_ROLL_DIMS, dims=1)
        return base, rolled * embedding_rows.OUTPUT_SCALE

    def set_rows(self, inputs: Tensor, outputs: Tensor) -> None:
        """Makes the trained rows those of a file, both (T, 256)."""
        base = self.table[self.trained].float()
        plain = outputs.roll(-embedding_rows.OUTPUT_ROLL_DIMS, dims=1) / embedding_rows.OUTPUT_SCALE
        self.delta_in.copy_((inputs - base) * self.free)
        self.delta_out.copy_((plain - base) * self.free)

    def embed(self, ids: Tensor) -> Tensor:
        """Input rows of token ids."""
        where = self.where[ids]
        base = self.table[ids].float()
        own = where < len(self.trained)
        base[own] = self.input_rows()[where[own]]
        return base

    def logit_rows(self, ids: Tensor) -> Tensor:
        """Output rows of token ids."""
        where = self.where[ids]
        base = (
            self.table[ids].float().roll(embedding_rows.OUTPUT_ROLL_DIMS, dims=1)
            * embedding_rows.OUTPUT_SCALE
        )
        own = where < len(self.trained)
        base[own] = self.output_rows()[where[own]]
        return base

    # -- blocks -------------------------------------------------------------------------------

    def norm(self, x: Tensor, gain: Tensor) -> Tensor:
        """RMS normalisation."""
        y = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.shape.epsilon)
        return (y * gain).to(self.dtype)

    def heads(self, h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Project, and split into heads."""
        y = F.linear(h, weight.to(self.dtype), bias.to(self.dtype))
        return y.unflatten(-1, (self.shape.heads, self.shape.head_dim))

    def turn(self, x: Tensor, position: Tensor) -> Tensor:
        """Apply rotary position embedding."""
        cos, sin = self.cos[position].unsqueeze(-2), self.sin[position].unsqueeze(-2)
        return rotate(x.float(), cos, sin).to(self.dtype)

    def experts(self, block: TransformerLayer, x: Tensor) -> Tensor:
        """The mixture of both experts."""
        shape, dtype = self.shape, self.dtype
        h = self.norm(x, block.ffn_norm)
        gate = F.linear(h, block.gate.to(dtype), block.gate_bias.to(dtype)).clamp(max=7)
        up = F.linear(h, block.up.to(dtype), block.up_bias.to(dtype)).clamp(-7, 7)
        hidden = gate * torch.sigmoid(1.702 * gate) * (up + 1)
        share = F.linear(h.float(), block.router, block.router_bias).softmax(dim=-1)
        weighted = hidden.unflatten(-1, (shape.experts, -1)) * share.to(dtype).unsqueeze(-1)
        down = F.linear(weighted.flatten(-2), block.down.to(dtype))
        return down.float() + share @ block.down_bias

    def forward(self, pack: Pack) -> Tensor:
        """Normed hidden states at `pack.loss_at`, (B, N, L, dim)."""
        shape = self.shape
        batch, plen = pack.prefix.shape
        _, count, slen = pack.segments.shape
        device = pack.prefix.device
        prefix_at = torch.arange(plen, device=device) - (plen - pack.prefix_length)[:, None]
        real = prefix_at >= 0
        prefix_at = prefix_at.clamp(min=0)
        seg_at = pack.prefix_length[:, None] + torch.arange(slen, device=device)
        ids = torch.cat((pack.prefix.flatten(), pack.segments.flatten()))
        x = self.embed(ids)
        split = batch * plen
        position = torch.cat(
            (prefix_at.flatten(), seg_at[:, None].expand(batch, count, slen).flatten())
        )
        low = -30000.0
        gap = torch.arange(plen, device=device)[:, None] - torch.arange(plen, device=device)
        seg_gap = torch.arange(slen, device=device)[:, None] - torch.arange(slen, device=device)

        def bias(mask: Tensor) -> Tensor:
            return torch.zeros(mask.shape, device=device, dtype=self.dtype).masked_fill_(~mask, low)

        last = shape.layers - 1
        for index, block in enumerate(self.blocks):
            assert isinstance(block, TransformerLayer)
            window = shape.window if index % 2 == 0 else 1 << 30
            h = self.norm(x, block.attn_norm)
            k = self.turn(self.heads(h, block.k, block.k_bias), position)
            v = self.heads(h, block.v, block.v_bias)
            kp = k[:split].unflatten(0, (batch, plen)).transpose(1, 2)  # B H P hd
            vp = v[:split].unflatten(0, (batch, plen)).transpose(1, 2)
            ks = k[split:].unflatten(0, (batch, count, slen)).permute(0, 3, 1, 2, 4)  # B H N S hd
            vs = v[split:].unflatten(0, (batch, count, slen)).permute(0, 3, 1, 2, 4)
            if index == last:
                at = pack.loss_at
                h = h[split:].unflatten(0, (batch, count, slen))
                take = at.unsqueeze(-1).expand(*at.shape, shape.dim)
                h = h.gather(2, take).flatten(0, 2)
                x = x[split:].unflatten(0, (batch, count, slen)).gather(2, take).flatten(0, 2)
                here = (pack.prefix_length[:, None, None] + at).flatten()
                q = self.turn(self.heads(h, block.q, block.q_bias), here)
                qs = q.unflatten(0, (batch, count, -1)).permute(0, 3, 1, 2, 4)
                own = bias(at.unsqueeze(-1) >= torch.arange(slen, device=device)).unsqueeze(1)
                far = bias(real[:, None, None, None, :]).expand(batch, 1, 1, 1, plen)
                mixed = attend(qs, kp, vp, ks, vs, far, own, block.sinks)
                y = mixed
            else:
                q = self.turn(self.heads(h, block.q, block.q_bias), position)
                qp = q[:split].unflatten(0, (batch, plen)).transpose(1, 2)
                qs = q[split:].unflatten(0, (batch, count, slen)).permute(0, 3, 1, 2, 4)
                seen = (gap >= 0) & (gap < window) & real[:, None, :]
                yp = attend_prefix(qp, kp, vp, bias(seen).unsqueeze(1), block.sinks)
                near = min(plen, window)
                key_at = torch.arange(plen - near, plen, device=device) - plen
                reach = torch.arange(slen, device=device)[:, None] - key_at < window
                far = bias(reach & real[:, None, None, None, plen - near :])
                own = bias((seg_gap >= 0) & (seg_gap < window))
                ys = attend(qs, kp[:, :, -near:], vp[:, :, -near:], ks, vs, far, own, block.sinks)
                y = torch.cat((yp, ys))
            x = x + F.linear(y, block.o.to(self.dtype), block.o_bias.to(self.dtype)).float()
            x = x + self.experts(block, x)
        return self.norm(x, self.output_norm).unflatten(0, (batch, count, -1))

    # -- the start ----------------------------------------------------------------------------

    @torch.no_grad()
    def set_by_hand(self) -> None:
        """Induction from step 0: it does not emerge in an hour on a CPU.

        Layer 0: heads 0 and 1 find the previous and the second previous token by biases on the
        fast rotation pairs and write 32 bits of their identity into the free dims. Layer 1: all
        heads look for earlier places whose two previous tokens are the two latest ones (on the
        slow pairs, which do not turn) and write the token found there as the next one.
        """
        shape = self.shape
        hd, half = shape.head_dim, shape.head_dim // 2
        first, second = self.blocks[0], self.blocks[1]
        assert isinstance(first, TransformerLayer) and isinstance(second, TransformerLayer)
        free = embedding_rows.IDENTITY_DIMS
        cos, sin = rope_table(shape, 3)
        scale = 1 + 0.1 * math.log(shape.rope_factor)
        fast = 13
        for head, back in enumerate((1, 2)):
            at = slice(head * hd, (head + 1) * hd)
            first.q[at] *= 0.05
            first.k[at] *= 0.05
            strength = 5.0
            first.q_bias[head * hd : head * hd + fast] = strength
            first.k_bias[head * hd : head * hd + fast] = strength * cos[back, :fast] / scale
            first.k_bias[head * hd + half : head * hd + half + fast] = (
                strength * sin[back, :fast] / scale
            )
            first.v[at] = 0
            first.o[:, at] = 0
            for bit in range(32):
                first.v[head * hd + bit, bit] = 1.0
                first.o[free + 32 * head + bit, head * hd + bit] = 1.0
            first.sinks[head] = -8
        slow = [*range(16, 32), *range(48, 64)]
        for head in range(shape.heads):
            at = slice(head * hd, (head + 1) * hd)
            second.q[at] *= 0.05
            second.k[at] *= 0.05
            second.v[at] *= 0.2
            second.o[:, at] = 0
            strength = 2.0
            for spot, dim in enumerate(slow):
                bit = (spot + 8 * head) % 32
                row = head * hd + dim
                if spot < 20:  # the current token against a key's previous one
                    second.q[row, bit] = strength
                    second.k[row, free + bit] = strength
                else:  # the previous token against a key's second previous one
                    second.q[row, free + bit] = strength
                    second.k[row, free + 32 + bit] = strength
            share = embedding_rows.IDENTITY_DIMS // shape.heads
            for spot in range(share):
                dim = head * share + spot
                second.v[head * hd + spot] = 0
                second.v[head * hd + spot, dim] = 1.0
                second.o[(dim + embedding_rows.OUTPUT_ROLL_DIMS) % shape.dim, head * hd + spot] = (
                    2.0
                )
            second.sinks[head] = 9.0
        for block in list(self.blocks)[2:]:
            # Later layers may move identities to the output too; they learn where to look.
            assert isinstance(block, TransformerLayer)
            for head in range(shape.heads):
                for spot in range(share):
                    dim = head * share + spot
                    block.v[head * hd + spot, dim] += 1.0
                    block.o[
                        (dim + embedding_rows.OUTPUT_ROLL_DIMS) % shape.dim, head * hd + spot
                    ] += 0.3


def _softmax_sink(parts: list[Tensor], sinks: Tensor) -> list[Tensor]:
    """Softmax over the last axes of `parts` together with one more column, the sink."""
    top = parts[0].detach().amax(dim=-1, keepdim=True)
    for part in parts[1:]:
        top = torch.maximum(top, part.detach().amax(dim=-1, keepdim=True))
    top = torch.maximum(top, sinks.detach().to(top.dtype))
    powers = [(part - top).exp() for part in parts]
    total = (sinks - top.float()).exp()
    for power in powers:
        total = total + power.sum(dim=-1, keepdim=True, dtype=torch.float32)
    inverse = total.reciprocal()
    return [*powers, inverse]


def attend_prefix(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, sinks: Tensor) -> Tensor:
    """Attention of (B, H, P, hd) over itself; returns (B·P, H·hd)."""
    scores = (q * 0.125) @ k.transpose(-1, -2) + mask
    power, inverse = _softmax_sink([scores], sinks.view(1, -1, 1, 1))
    y = (power @ v) * inverse.to(v.dtype)
    return y.transpose(1, 2).flatten(2).flatten(0, 1)


def attend(
    q: Tensor,
    kp: Tensor,
    vp: Tensor,
    ks: Tensor,
    vs: Tensor,
    far: Tensor,
    own: Tensor,
    sinks: Tensor,
) -> Tensor:
    """Attention of segments over their prefix and themselves; returns (B·N·L, H·hd).

    q (B, H, N, L, hd); kp, vp (B, H, P, hd); ks, vs (B, H, N, S, hd); far broadcasts to
    (B, H, N, L, P) and own to (B, H, N, L, S).
    """
    count, length = q.shape[2:4]
    q = q * 0.125
    flat = q.flatten(2, 3)
    there = (flat @ kp.transpose(-1, -2)).unflatten(2, (count, length)) + far
    here = q @ ks.transpose(-1, -2) + own
    p_there, p_here, inverse = _softmax_sink([there, here], sinks.view(1, -1, 1, 1, 1))
    y = (p_there.flatten(2, 3) @ vp).unflatten(2, (count, length)) + p_here @ vs
    y = y * inverse.to(y.dtype)
    return y.permute(0, 2, 3, 1, 4).flatten(3).flatten(0, 2)
