"""Residual schemes: where a block normalizes and how it adds a sublayer's output."""

from __future__ import annotations

from keras_transformer.blocks.residual.ada_ln_zero import AdaLNZeroResidual
from keras_transformer.blocks.residual.deep_norm import DeepNormResidual
from keras_transformer.blocks.residual.gated import GatedResidual
from keras_transformer.blocks.residual.layer_scale import LayerScaleResidual
from keras_transformer.blocks.residual.no_residual import NoResidual
from keras_transformer.blocks.residual.re_zero import ReZeroResidual
from keras_transformer.blocks.residual.resi_dual import ResiDualResidual
from keras_transformer.blocks.residual.residual import (
    NormalizedSkipResidual,
    PostNormResidual,
    PreNormResidual,
    Residual,
    SandwichNormResidual,
    SublayerNormResidual,
)
from keras_transformer.blocks.residual.scaled import ScaledResidual
from keras_transformer.utils.serialization import clone, resolve
from keras_transformer.utils.types import DType, LayerLike

RESIDUALS: dict[str, type[Residual]] = {
    "post": PostNormResidual,
    "pre": PreNormResidual,
    "normalized_skip": NormalizedSkipResidual,
    "sandwich": SandwichNormResidual,
    "sublayer": SublayerNormResidual,
    "deepnorm": DeepNormResidual,
    "rezero": ReZeroResidual,
    "residual": ResiDualResidual,
    "scaled": ScaledResidual,
    "layer_scale": LayerScaleResidual,
    "none": NoResidual,
    "ada_ln_zero": AdaLNZeroResidual,
    "gated": GatedResidual,
}


def make_residual(identifier: object, norm: LayerLike, name: str, dtype: DType) -> Residual:
    """Makes a residual scheme for a block: one by name with `norm`, or a copy of an instance.

    Raises:
        ValueError: unknown name, or not a residual scheme.
    """
    return clone(resolve(identifier, RESIDUALS, Residual, norm=norm), name=name, dtype=dtype)
