"""VITS from texts to speech: token ids, durations and their gradients, speakers, rates and noise, and refusals."""

import json
import pathlib
import shutil

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from checkpoint_cases import Expected, difference, predicted
from keras_transformer import checkpoints, text
from keras_transformer.backend.gradients.vjp import vjp
from keras_transformer.checkpoints.transfers import make_transfers

DATA = pathlib.Path(__file__).parents[1] / "data" / "checkpoints"
FOLDERS = [DATA / "vits-Model", DATA / "vits_plain-Model"]


@pytest.fixture(scope="module", params=FOLDERS, ids=lambda folder: folder.name)
def case(request):
    return request.param, checkpoints.from_huggingface(request.param, verbose=0)


@pytest.fixture(scope="module")
def model():
    return checkpoints.from_huggingface(FOLDERS[0], verbose=0)


def test_token_ids_are_those_of_transformers(case):
    folder, model = case
    for given, ids in json.loads((folder / "texts.json").read_text()).items():
        # The name of a special token in a text is a token only when asked.
        is_asked = "<unk>" in given and not model.tokenizer.normalize
        assert model.tokenizer.encode(given, allow_special_tokens=is_asked) == ids, given


def test_log_durations_and_their_gradients_are_those_of_torch(case):
    """Durations are rounded in the model: their gradients end before its outputs."""
    folder, model = case
    with np.load(folder / "durations.npz") as arrays:
        expected, direction = arrays["log_durations"], arrays["direction"]
        gradients = {name.removeprefix("gradient/"): arrays[name] for name in arrays if name.startswith("gradient/")}
    predictor = model.get_layer("duration_predictor")
    before = keras.Model(model.input, model.get_layer("prior").input)
    given = Expected(folder).inputs
    hidden, mask = before(given), given["padding_mask"]
    options = {"padding_mask": mask}
    if "speaker" in given:
        options["speaker"] = model.get_layer("speaker_embedding")(given["speaker"])
        options["noise"] = given["duration_noise"]
    variables = predictor.trainable_variables

    def log_durations(*values):
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return predictor(hidden, **options)

    found, pullback = vjp(log_durations, *(variable.value for variable in variables))
    # Norms of small numbers enlarge rounding: torch itself is 1e-6 away from what it computes in float64.
    np.testing.assert_allclose(np.where(mask, found, np.nan), expected, atol=4e-6 * np.nanmax(np.abs(expected)))
    assert np.nanstd(expected) > 0.1
    by_path = dict(zip((each.path for each in variables), pullback(direction), strict=True))
    for transfer in make_transfers(model.checkpoint.entries, model):
        names = set(transfer.theirs) & set(gradients)
        if names:
            ours = transfer.layout.write(
                [keras.ops.convert_to_numpy(by_path[each.path]) for each in transfer.variables]
            )
            for name, gradient in zip(transfer.theirs, ours, strict=True):
                theirs = gradients.pop(name)
                np.testing.assert_allclose(gradient, theirs, atol=2e-5 * max(1, np.abs(theirs).max()), err_msg=name)
    assert not gradients


def test_noise_that_is_too_short_cuts_the_end_off(model):
    inputs, whole = Expected(FOLDERS[0]).inputs, Expected(FOLDERS[0]).outputs
    row, length = whole["num_samples"].argmin(), whole["num_samples"].min()
    noise = inputs["frame_noise"][:, : length // model.samples_per_frame]
    found = predicted(model, {**inputs, "frame_noise": noise})
    assert found["samples"].shape[1] == length
    # The shortest text is whole; the others are as long as before.
    np.testing.assert_allclose(found["samples"][row], whole["samples"][row, :length], atol=1e-5)
    np.testing.assert_array_equal(found["num_samples"], whole["num_samples"])
    assert found["num_samples"].max() > length


@pytest.mark.slow
def test_speech_is_that_of_each_text_alone(case):
    _, model = case
    texts, speakers = ["make", "ta", "", "moe ta mab"], [1, 0, 2, 3] if model.num_speakers > 1 else 0
    spoken = model.speak(texts, speakers, seed=5)
    assert len(spoken[2].samples) == 0
    assert {each.sample_rate for each in spoken} == {8000}
    for index in (0, 1, 3):
        speaker = speakers[index] if model.num_speakers > 1 else 0
        (alone,) = model.speak(texts[index], speaker, seed=5)
        assert len(alone.samples) == len(spoken[index].samples) > 0
        np.testing.assert_allclose(alone.samples, spoken[index].samples, atol=1e-5)
        assert np.std(alone.samples) > 0.05


@pytest.mark.slow
def test_speech_is_what_the_model_gives_for_the_noise(model):
    """The config's rate, and the noise of the seed."""
    (spoken,) = model.speak("make", 3, seed=5)
    ids = model.tokenizer.encode("make")
    entropy = np.random.SeedSequence(5).entropy
    tokens, frames = (np.random.default_rng((entropy, number)) for number in range(2))
    inputs = {
        "token_ids": np.array([ids], "int32"),
        "padding_mask": np.ones((1, len(ids)), bool),
        "speaking_rate": np.array([1.25], "float32"),
        "speaker": np.array([3], "int32"),
        "duration_noise": tokens.standard_normal((1, len(ids), 2)).astype("float32"),
        "frame_noise": frames.standard_normal((1, 64, 6)).astype("float32"),
    }
    found = predicted(model, inputs)
    assert found["num_samples"].tolist() == [len(spoken.samples)]
    np.testing.assert_allclose(spoken.samples, found["samples"][0, : len(spoken.samples)], atol=1e-5)


def test_speakers_rates_and_noise_change_speech(model):
    def speech(**options):
        return model.speak([[0, 5, 0, 3, 0, 2, 0]], **{"speaker": 1, "seed": 3, **options})[0].samples

    usual = speech()
    np.testing.assert_array_equal(speech(), usual)
    assert len(speech(speaking_rate=0.3)) > 2 * len(usual)
    for options in ({"speaker": 2}, {"seed": 4}, {"noise_scale": 0.1}, {"duration_noise_scale": 0.0}):
        other = speech(**options)
        assert len(other) != len(usual) or np.abs(other - usual).max() > 1e-2, options
    # Without noise, the seed has no effect.
    silent = {"noise_scale": 0.0, "duration_noise_scale": 0.0}
    np.testing.assert_array_equal(speech(**silent), speech(**silent, seed=4))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"speaker": 5}, r"speaker must be an int in \[0, 5\)"),
        ({"speaker": [0, 1]}, "one for each of 1 texts"),
        ({"speaking_rate": 0}, "speaking_rate must be a positive number"),
        ({"noise_scale": -1.0}, "noise_scale must not be negative"),
        ({"texts": [[17]]}, r"Token ids must be in \[0, 17\)"),
    ],
    ids=str,
)
def test_what_cannot_be_spoken(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        model.speak(**{"texts": "make", **arguments})


def changed(tmp_path, file, **settings):
    folder = shutil.copytree(FOLDERS[0], tmp_path / "changed")
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**content, **settings}))
    return folder


@pytest.mark.parametrize(
    "setting, needed, given, spelled",
    [
        ({"phonemize": True}, "phonemizer", "make", "ma  be"),
        ({"is_uroman": True}, "uroman", "маке", "make"),
    ],
    ids=str,
)
def test_texts_that_have_to_be_spelled(setting, needed, given, spelled, tmp_path):
    tokenizer = text.from_huggingface(changed(tmp_path, "tokenizer_config.json", **setting))
    with pytest.raises(text.SpellingError, match=f"pip install {needed}.*tokenizer.speller"):
        tokenizer.encode(given)
    tokenizer.speller = lambda found: spelled if found == given else found
    plain = text.from_huggingface(FOLDERS[0])
    assert tokenizer.encode(given) == plain.encode(" ".join(spelled.split()))
    if needed == "uroman":  # Texts in ASCII are as they are.
        assert tokenizer.encode("book") == plain.encode("book")


@pytest.mark.parametrize(
    "setting",
    [
        {"depth_separable_channels": 4},
        {"speaker_embedding_size": 0},
        {"upsample_kernel_sizes": [4, 6]},
        {"upsample_rates": [3]},
        {"resblock_kernel_sizes": [4, 5]},
        {"resblock_dilation_sizes": [[1, 2], 3]},
        {"resblock_dilation_sizes": [[1, 2], [0]]},
        {"wavenet_kernel_size": 4},
        {"duration_predictor_kernel_size": 4},
        {"duration_predictor_flow_bins": 1},
        {"duration_predictor_tail_bound": 0},
        {"flow_size": 7},
        {"noise_scale": -0.5},
        {"speaking_rate": 0},
        {"num_attention_heads": 5},
        {"duration_predictor_num_flows": 10**9},
        {"use_stochastic_duration_prediction": "yes"},
    ],
    ids=str,
)
def test_settings_that_are_refused(setting, tmp_path):
    with pytest.raises(checkpoints.ConfigError, match=r"config.json"):
        checkpoints.from_huggingface(changed(tmp_path, "config.json", **setting), verbose=0)


def test_old_names_of_weight_normalization(model, tmp_path):
    folder = shutil.copytree(FOLDERS[0], tmp_path / "old")
    tensors = load_file(folder / "model.safetensors")
    ends = {f"parametrizations.weight.original{part}": f"weight_{letter}" for part, letter in enumerate("gv")}
    renamed = {
        next((name.replace(new, old) for new, old in ends.items() if name.endswith(new)), name): array
        for name, array in tensors.items()
    }
    assert set(renamed) != set(tensors)
    save_file(renamed, folder / "model.safetensors")
    old = checkpoints.from_huggingface(folder, verbose=0)
    assert all(map(np.array_equal, old.get_weights(), model.get_weights()))
    checkpoints.to_huggingface(old, tmp_path / "again", verbose=0)
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert all(np.array_equal(again[name], array) for name, array in renamed.items())


def test_trained_kernels_are_written_with_their_norms(tmp_path):
    model = checkpoints.from_huggingface(FOLDERS[0], verbose=0)
    kernel = next(each for each in model.weights if each.path.endswith("flow_1/wave_net/gate_2/kernel"))
    kernel.assign(keras.ops.convert_to_numpy(kernel) * 1.5 + 0.1)
    checkpoints.to_huggingface(model, tmp_path / "again", verbose=0)
    again, inputs = checkpoints.from_huggingface(tmp_path / "again", verbose=0), Expected(FOLDERS[0]).inputs
    assert difference(predicted(again, inputs), predicted(model, inputs), inputs)[0] <= 2e-6
