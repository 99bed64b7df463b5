"""Models that become smaller while they train: quantization-aware training, distillation, structured pruning."""
