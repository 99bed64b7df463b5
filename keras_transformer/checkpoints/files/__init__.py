"""The files of a checkpoint: tensors, processors, modules of Sentence Transformers."""
