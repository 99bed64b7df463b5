"""The package works without TensorFlow and Keras."""

import subprocess
import sys

CODE = """
import sys
import keras_transformer.text as text
assert not {"tokenizers", "sentencepiece"} & set(sys.modules), "a library is loaded before it is needed"

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "tensorflow_text", "keras", "torch", "jax"):
            raise AssertionError(f"imports {name}")

sys.meta_path.insert(0, Refuse())
corpus = ["the cat sat on the mat"] * 5
made = [
    text.WordPiece.train(corpus, 60), text.SentencePiece.train(corpus, 300), text.BytePair.train(corpus, 270),
    text.Characters.train(corpus), text.Bytes(),
]
made.append(text.HuggingFaceTokenizer(made[2]._files()["tokenizer.json"].decode()))
for tokenizer in made:
    tokenizer.save(tokenizer.kind)
    loaded = text.load_tokenizer(tokenizer.kind)
    batch = loaded(["the cat", "mat"], return_offsets=True)
    stream = loaded.stream()
    pieces = [stream.push(index) for index in loaded.encode("the mat")] + [stream.finish()]
    print(loaded.decode(batch["token_ids"]), "".join(pieces))
"""


def test_neither_tensorflow_nor_keras_is_imported(tmp_path):
    result = subprocess.run([sys.executable, "-c", CODE], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["['the cat', 'mat'] the mat"] * 6
