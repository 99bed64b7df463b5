"""The stage of the weights: every variable of a model is in its files, bit for bit or explained."""
