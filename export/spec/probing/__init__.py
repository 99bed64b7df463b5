"""Values and sizes of probes: what the layers that read an input say of it, and regions and sizes beside the usual ones."""
