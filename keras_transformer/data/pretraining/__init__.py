"""Inputs and labels of pretraining objectives: masked and permuted language modeling."""
