"""The peers in PyTorch: a pre-norm Vision Transformer, an encoder and GPT with `scaled_dot_product_attention`.

Written for speed: one projection for query, key and value, and the fused kernel.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_map


class Block(nn.Module):
    """`x + attention(norm(x))`, then `x + feedforward(norm(x))`; post-norm: `norm(x + attention(x))`, and so on.

    Args:
        measures: `networks.Measures`.
        causal: bool. Whether to apply a causal mask.
        approximate: "tanh" or "none". Approximation of GELU.
        epsilon: float. Epsilon of the normalization layers.
        post_norm: bool.
    """

    def __init__(self, measures, causal, approximate, epsilon, post_norm=False):
        super().__init__()
        width = measures.hidden_dim
        self.num_heads, self.causal, self.post_norm = measures.num_heads, causal, post_norm
        self.rate, self.dropout = measures.dropout, nn.Dropout(measures.dropout)
        self.attention_norm = nn.LayerNorm(width, eps=epsilon)
        self.qkv = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.feedforward_norm = nn.LayerNorm(width, eps=epsilon)
        self.feedforward = nn.Sequential(
            nn.Linear(width, measures.intermediate_dim),
            nn.GELU(approximate=approximate),
            nn.Linear(measures.intermediate_dim, width),
        )

    def forward(self, x, mask=None):
        if self.post_norm:
            x = self.attention_norm(x + self.dropout(self._attend(x, mask)))
            return self.feedforward_norm(x + self.dropout(self.feedforward(x)))
        x = x + self.dropout(self._attend(self.attention_norm(x), mask))
        return x + self.dropout(self.feedforward(self.feedforward_norm(x)))

    def _attend(self, x, mask):
        batch_size, length, width = x.shape
        qkv = self.qkv(x).view(batch_size, length, 3, self.num_heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each (B, N, T, H)
        rate = self.rate if self.training else 0.0
        context = F.scaled_dot_product_attention(query, key, value, mask, dropout_p=rate, is_causal=self.causal)
        return self.output(context.transpose(1, 2).reshape(batch_size, length, width))


class ViT(nn.Module):
    """Images `(B, 3, height, width)` to logits, from the class token."""

    def __init__(self, measures, num_classes):
        super().__init__()
        width, patch = measures.hidden_dim, measures.patch_size
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn((measures.image_size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(measures, False, "none", 1e-6) for _ in range(measures.num_layers)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, num_classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class Encoder(nn.Module):
    """Token ids and padding mask `(B, T)` to logits, from the first token."""

    def __init__(self, measures, num_classes):
        super().__init__()
        width = measures.hidden_dim
        self.embedding = nn.Embedding(measures.vocabulary_size, width)
        self.positions = nn.Parameter(torch.randn(measures.length, width) * 0.02)
        self.dropout = nn.Dropout(measures.dropout)
        self.blocks = nn.ModuleList(Block(measures, False, "none", 1e-3) for _ in range(measures.num_layers))
        self.norm = nn.LayerNorm(width, eps=1e-3)
        self.head = nn.Linear(width, num_classes)

    def forward(self, batch):
        token_ids, padding_mask = batch["token_ids"], batch["padding_mask"]
        x = self.dropout(self.embedding(token_ids) + self.positions[: token_ids.shape[1]])
        for block in self.blocks:
            x = block(x, padding_mask[:, None, None])
        return self.head(self.norm(x)[:, 0])


class BERT(nn.Module):
    """Token ids `(B, T)` to logits, from the first token; all tokens are of the first segment."""

    def __init__(self, measures, num_classes):
        super().__init__()
        width = measures.hidden_dim
        self.embedding = nn.Embedding(measures.vocabulary_size, width)
        self.segments = nn.Embedding(2, width)
        self.positions = nn.Parameter(torch.randn(measures.length, width) * 0.02)
        self.embedding_norm = nn.LayerNorm(width, eps=1e-12)
        self.blocks = nn.Sequential(*(Block(measures, False, "none", 1e-12, True) for _ in range(measures.num_layers)))
        self.head = nn.Linear(width, num_classes)

    def forward(self, token_ids):
        segments = self.segments(torch.zeros_like(token_ids))
        x = self.embedding(token_ids) + segments + self.positions[: token_ids.shape[1]]
        return self.head(self.blocks(self.embedding_norm(x))[:, 0])


class GPT(nn.Module):
    """Token ids `(B, T)` to logits `(B, T, V)`, with tied embeddings."""

    def __init__(self, measures):
        super().__init__()
        self.embedding = nn.Embedding(measures.vocabulary_size, measures.hidden_dim)
        self.positions = nn.Parameter(torch.randn(measures.length, measures.hidden_dim) * 0.02)
        self.blocks = nn.Sequential(*(Block(measures, True, "tanh", 1e-3) for _ in range(measures.num_layers)))
        self.norm = nn.LayerNorm(measures.hidden_dim, eps=1e-3)

    def forward(self, token_ids):
        x = self.embedding(token_ids) + self.positions[: token_ids.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.embedding.weight)


def count_parameters(network):
    return sum(parameter.numel() for parameter in network.parameters())


def training_step(network, batch, device, compiled, autocast=True):
    """Returns a function that runs one optimizer step, without waiting for the device.

    Args:
        network: `nn.Module`.
        batch: pair of numpy arrays, inputs and int labels; moved to the device once.
        device: "cuda" or "cpu".
        compiled: bool. Whether `torch.compile` compiles forward and backward.
        autocast: bool. Whether products are computed in bfloat16.
    """
    network = network.to(device).train()
    optimizer = torch.optim.AdamW(network.parameters(), 1e-4, fused=True)
    inputs, labels = tree_map(lambda array: torch.as_tensor(array, device=device), batch)
    labels = labels.long()

    def loss():
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            logits = network(inputs)
        return F.cross_entropy(logits.flatten(0, -2).float(), labels.flatten())

    loss = torch.compile(loss) if compiled else loss

    def step():
        loss().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def wait(device):
    """Waits for the device."""
    if device == "cuda":
        torch.cuda.synchronize()
