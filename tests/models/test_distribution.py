"""Two replicas give what one gives with the whole batch."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

# Virtual devices must be made before TensorFlow starts: a process of its own.
SCRIPT = """
import numpy as np, tensorflow as tf, keras
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from keras_transformer import models, tasks

def train():
    keras.utils.set_random_seed(0)
    backbone = models.ViT(models.Size(1, 16, 2, 32), patch_size=4, image_size=8)
    model = tasks.ImageClassifier(backbone, num_classes=3)
    model.compile(keras.optimizers.SGD(0.1), loss="sparse_categorical_crossentropy")
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(16, 8, 8, 3)).astype("float32"), rng.integers(0, 3, 16)
    return model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"], model.get_weights()

alone_losses, alone = train()
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert strategy.num_replicas_in_sync == 2
with strategy.scope():
    mirrored_losses, mirrored = train()
print(max(abs(a - b) for a, b in zip(alone_losses, mirrored_losses)))
print(max(float(np.abs(a - b).max()) for a, b in zip(alone, mirrored)))
"""


@pytest.mark.exhaustive
def test_mirrored_strategy_on_two_devices():
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    losses, weights = map(float, result.stdout.split()[-2:])
    assert losses < 1e-5
    assert weights < 1e-5
