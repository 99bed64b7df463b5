"""Four small tasks on real data, for `architectures.py`: training data and scores."""

import pathlib
import tempfile

import keras
import numpy as np

from keras_transformer import data, retrieval, tasks, text, training


class Language:
    """Language modeling; the score is nats per token."""

    lower_is_better = True
    label_smoothing = 0.0
    _tokenizer = None

    def with_head(self, backbone):
        return tasks.LanguageModel(backbone, tokenizer=self._tokenizer)

    def compile_options(self):
        loss = training.MaskedCrossentropy(self.label_smoothing)
        return {"loss": loss, "metrics": [training.Perplexity(name="perplexity")]}

    @staticmethod
    def _nats(model, stream):
        return float(np.log(model.evaluate(stream.epoch(), verbose=0, return_dict=True)["perplexity"]))


class Characters(Language):
    """Characters of Tiny Shakespeare; the score is nats per character of the held-out tenth."""

    name = "text"
    unit = "nats per character"
    steps, learning_rate = 400, 2e-3
    # Many small operations, which XLA fuses.
    jit_compile = True
    context, batch_size = 64, 12

    def __init__(self, data_dir, smoke):
        whole = (data_dir / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
        whole = whole[:20_000] if smoke else whole
        cut = int(0.9 * len(whole))
        self._tokenizer = text.Characters.train([whole[:cut]])
        self._train, self._test = (
            np.array(self._tokenizer.encode(each), "int32") for each in (whole[:cut], whole[cut:])
        )
        self.vocabulary_size = self._tokenizer.vocabulary_size
        self.description = f"batches of {self.batch_size} sequences of {self.context} characters"

    def batches(self, model, steps, seed):
        stream = data.language_model_batches(self._train, self.context, self.batch_size, steps, seed=seed)
        return stream.repeat()

    def figure(self, model):
        return self._nats(model, data.evaluation_batches(self._test, self.context, batch_size=64))


class Translation(Language):
    """English to German on Multi30k; the score is nats per subword of the validation set."""

    name = "translation"
    unit = "nats per subword"
    label_smoothing = 0.1
    steps, learning_rate = 300, 2e-3
    jit_compile = False
    num_pairs, num_subwords = 10_000, 2_000
    # One shape for all batches, so that a model is traced once; longer pairs are excluded.
    batch_size, max_length = 32, 32

    def __init__(self, data_dir, smoke):
        pairs = {
            split: list(data.read_pairs(*(data_dir / "multi30k" / f"{split}.{side}.gz" for side in ("en", "de"))))
            for split in ("train", "val")
        }
        train, test = pairs["train"][: 200 if smoke else self.num_pairs], pairs["val"][: 20 if smoke else None]
        sentences = [sentence for pair in train for sentence in pair]
        self._tokenizer = text.SentencePiece.train(sentences, 600 if smoke else self.num_subwords)
        self._train, self._test = self._encode(train), self._encode(test)
        self.vocabulary_size = self._tokenizer.vocabulary_size
        self.description = f"{len(train)} pairs of at most {self.max_length} subwords, {self.batch_size} per batch"

    def _encode(self, pairs):
        sources, targets = (list(side) for side in zip(*pairs, strict=True))
        encode = self._tokenizer.encode
        return data.sequence_to_sequence(encode(sources, end=True), encode(targets, start=True, end=True))

    def _stream(self, pairs, **options):
        tokens, longest = self.batch_size * self.max_length, self.max_length
        return data.bucket_batches(*pairs, tokens_per_batch=tokens, max_length=longest, multiple=longest, **options)

    def batches(self, model, steps, seed):
        return self._stream(self._train, seed=seed).repeat()

    def figure(self, model):
        return self._nats(model, self._stream(self._test, shuffle=False))


class Images:
    """Classification of CIFAR-10; the score is the accuracy on 2,000 test images."""

    name = "images"
    unit = "accuracy"
    lower_is_better = False
    steps, learning_rate = 300, 1e-3
    jit_compile = False
    batch_size, image_size, num_classes = 64, 32, 10

    def __init__(self, data_dir, smoke):
        images = data.load_images(data_dir=data_dir / "cifar10_jpeg_subset")
        chosen = np.random.default_rng(0).permutation(len(images.test.labels))[: 100 if smoke else 2000]
        self._train = images.train
        self._test = images.test.images[chosen], images.test.labels[chosen]
        self.description = f"{len(images.train.labels)} training images, batches of {self.batch_size}"

    def with_head(self, backbone):
        model = tasks.ImageClassifier(backbone, self.num_classes, pooling="mean")
        return data.on_pixels(model, self._train.images)

    def compile_options(self):
        return {"loss": keras.losses.CategoricalCrossentropy(), "metrics": ["accuracy"]}

    def batches(self, model, steps, seed):
        augmentation = data.Augmentation(shift=2, flip=True)
        options = {"augmentation": augmentation, "shuffle": True, "seed": seed}
        return data.batches(self._train, self.batch_size, self.num_classes, **options).repeat()

    def figure(self, model):
        found = model.evaluate(data.batches(self._test, 250, self.num_classes), verbose=0, return_dict=True)
        return found["accuracy"]


class Sentences(Language):
    """Characters of film reviews, with a retrieval database; the score is nats per character.

    The database is the source collection of the sentences, in different spelling. Test sentences with a match in it are
    excluded, because retrieval would be copying.
    """

    name = "sentences"
    unit = "nats per character"
    steps, learning_rate = 300, 3e-3
    jit_compile = True
    chunk_size, num_neighbors, context, batch_size = 16, 2, 128, 16

    def __init__(self, data_dir, smoke):
        train, test, others = (
            self._read(data_dir / "sentence_cls" / name)[: 50 if smoke else None]
            for name in ("stsa.fine.train", "stsa.fine.test", "rt-polarity.all")
        )
        known = {_letters(sentence) for sentence in others}
        test = [sentence for sentence in test if _letters(sentence) not in known]
        self._tokenizer = text.Characters.train([*train, *others])
        self.vocabulary_size = self._tokenizer.vocabulary_size
        self._folder = tempfile.TemporaryDirectory()
        options = {"embed": retrieval.HashedNGrams(width=128), "backend": "faiss"}
        folder = pathlib.Path(self._folder.name)
        self._database = retrieval.ChunkDatabase.build(
            folder / "database", others, self._tokenizer, chunk_size=self.chunk_size, **options
        )
        self._train, self._test = (
            self._chunks(folder / name, part) for name, part in (("train", train), ("test", test))
        )
        self.description = (
            f"{len(train)} sentences, {len(test)} held out, {len(self._database)} chunks of {self.chunk_size} characters "
            f"with {self.num_neighbors} neighbors, {self.batch_size} sequences of {self.context} per batch"
        )

    @staticmethod
    def _read(path):
        lines = path.read_text(encoding="utf-8" if path.name.startswith("stsa") else "latin-1").splitlines()
        return [sentence.strip() for _, _, sentence in (line.partition(" ") for line in lines) if sentence.strip()]

    def _chunks(self, folder, sentences):
        folder.mkdir()
        chunks = retrieval.Chunks.build(folder, sentences, self._tokenizer, self.chunk_size)
        return chunks, self._database.neighbors_of(chunks, self.num_neighbors)

    def batches(self, model, steps, seed):
        sizes = (self.context, self.batch_size, steps)
        stream = retrieval.retrieval_batches(*self._train, self._database, *sizes, seed=seed)
        return stream.with_inputs(model.input).repeat()

    def figure(self, model):
        stream = retrieval.retrieval_evaluation_batches(*self._test, self._database, self.context, batch_size=32)
        return self._nats(model, stream.with_inputs(model.input))


def _letters(sentence):
    return "".join(filter(str.isalpha, sentence.lower()))


TASKS = {task.name: task for task in (Characters, Images, Translation, Sentences)}
