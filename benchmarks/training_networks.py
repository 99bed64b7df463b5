"""The networks that `training_worker.py` trains, each with its head, from the dict of a job."""


def _size(job):
    from keras_transformer import models

    return models.Size(*job["size"])


def decoder(job):
    from keras_transformer import models, tasks

    return tasks.LanguageModel(models.Decoder(_size(job), job["vocabulary_size"], max_sequence_length=job["length"]))


def encoder(job):
    from keras_transformer import models, tasks

    options = {"max_sequence_length": job["length"], "position": "rotary", "feedforward": "gated"}
    return tasks.MaskedLanguageModel(models.Encoder(_size(job), job["vocabulary_size"], **options))


def vit(job):
    from keras_transformer import models, tasks

    return tasks.ImageClassifier(models.ViT(_size(job), 16, job["length"]), job["vocabulary_size"], activation=None)


def t5(job):
    from keras_transformer import models, tasks

    return tasks.LanguageModel(models.T5(models.T5Size(*job["size"]), job["vocabulary_size"]))


def experts(job):
    from keras_transformer import feedforward, models, tasks

    size = _size(job)
    mixture = feedforward.MixtureOfExperts(size.intermediate_dim, router=4)
    options = {"max_sequence_length": job["length"], "feedforward": mixture}
    return tasks.LanguageModel(models.Decoder(size, job["vocabulary_size"], **options))


def adapted(job):
    from keras_transformer import models, tasks, training

    model = tasks.LanguageModel(models.Llama(_size(job), job["vocabulary_size"]))
    return training.add_lora(model, rank=8, layers="attention|feedforward")


def retention(job):
    from keras_transformer import models, tasks

    return tasks.LanguageModel(models.RetNet(_size(job), job["vocabulary_size"]))


NETWORKS = {each.__name__: each for each in (decoder, encoder, vit, t5, experts, adapted, retention)}
