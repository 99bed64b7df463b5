"""Gradients that Keras lacks: vector-Jacobian products, recomputation, gradients within a model."""
