"""The verification of written files, in stages.

References: `rounding` measures how far rounding moves the outputs of the Keras model on the probes. Weights: `weights`
finds every variable in the files. Outputs: `outputs` runs the files on the probes, and compares what they compute with the
references, by `comparison`. Quantized: `quantized` judges quantized files by the float ones. Verdict: `verify` does all of a
bundle again.
"""
