"""The peers in Flax: a pre-norm Vision Transformer, an encoder and GPT of `flax.linen` layers, trained with Optax."""

import functools

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn


class Block(nn.Module):
    """`x + attention(norm(x))`, then `x + feedforward(norm(x))`.

    Args:
        measures: `networks.Measures`.
        epsilon: float. Epsilon of the normalization layers.
        approximate: bool. Whether GELU is the tanh approximation.
    """

    measures: tuple
    epsilon: float
    approximate: bool = False

    @nn.compact
    def __call__(self, x, mask=None):
        measures, norm = self.measures, functools.partial(nn.LayerNorm, epsilon=self.epsilon)
        drop = nn.Dropout(measures.dropout, deterministic=False)
        attention = nn.MultiHeadDotProductAttention(
            measures.num_heads, dropout_rate=measures.dropout, deterministic=False, broadcast_dropout=False
        )
        x = x + drop(attention(norm()(x), mask=mask))
        y = nn.gelu(nn.Dense(measures.intermediate_dim)(norm()(x)), approximate=self.approximate)
        return x + drop(nn.Dense(measures.hidden_dim)(y))


class ViT(nn.Module):
    """Images `(B, height, width, 3)` to logits, from the class token."""

    measures: tuple
    num_classes: int

    @nn.compact
    def __call__(self, images):
        width, patch = self.measures.hidden_dim, self.measures.patch_size
        x = nn.Conv(width, (patch, patch), (patch, patch), padding="VALID")(images)
        x = x.reshape(len(x), -1, width)
        token = self.param("class_token", nn.initializers.zeros, (1, 1, width))
        x = jnp.concatenate([jnp.broadcast_to(token, (len(x), 1, width)), x], 1)
        x = x + self.param("positions", nn.initializers.normal(0.02), x.shape[1:])
        for _ in range(self.measures.num_layers):
            x = Block(self.measures, 1e-6)(x)
        return nn.Dense(self.num_classes)(nn.LayerNorm(1e-6)(x)[:, 0])


class Encoder(nn.Module):
    """Token ids and padding mask `(B, T)` to logits, from the first token."""

    measures: tuple
    num_classes: int

    @nn.compact
    def __call__(self, batch):
        token_ids, mask = batch["token_ids"], batch["padding_mask"][:, None, None]
        x = nn.Embed(self.measures.vocabulary_size, self.measures.hidden_dim)(token_ids)
        x = x + self.param("positions", nn.initializers.normal(0.02), (self.measures.length, x.shape[-1]))
        x = nn.Dropout(self.measures.dropout, deterministic=False)(x)
        for _ in range(self.measures.num_layers):
            x = Block(self.measures, 1e-3)(x, mask)
        return nn.Dense(self.num_classes)(nn.LayerNorm(1e-3)(x)[:, 0])


class GPT(nn.Module):
    """Token ids `(B, T)` to logits `(B, T, V)`, with tied embeddings."""

    measures: tuple

    @nn.compact
    def __call__(self, token_ids):
        table = nn.Embed(self.measures.vocabulary_size, self.measures.hidden_dim)
        x = table(token_ids) + self.param(
            "positions", nn.initializers.normal(0.02), (token_ids.shape[1], self.measures.hidden_dim)
        )
        mask = nn.make_causal_mask(token_ids)
        for _ in range(self.measures.num_layers):
            x = Block(self.measures, 1e-5, approximate=True)(x, mask)
        return table.attend(nn.LayerNorm(1e-5)(x))


def training_step(network, batch):
    """Returns a function that runs one step and returns its loss, and the number of parameters."""
    inputs, labels = jax.tree.map(jnp.asarray, batch)
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    weights = network.init(keys, inputs)
    optimizer = optax.adamw(1e-4, weight_decay=0.004)

    def loss(weights, key):
        logits = network.apply(weights, inputs, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @functools.partial(jax.jit, donate_argnums=0)
    def update(state):
        weights, moments, key = state
        key, own = jax.random.split(key)
        value, gradients = jax.value_and_grad(loss)(weights, own)
        changes, moments = optimizer.update(gradients, moments, weights)
        return (optax.apply_updates(weights, changes), moments, key), value

    state = [(weights, optimizer.init(weights), keys["dropout"])]

    def step():
        state[0], value = update(state[0])
        return float(value)

    return step, sum(each.size for each in jax.tree.leaves(weights))
