"""Settings of XLNet and Reformer that are wrong, hostile, or of a variant that is not built."""

import json
import pathlib
import shutil

import pytest

from keras_transformer import checkpoints

DATA = pathlib.Path(__file__).parents[1] / "data" / "checkpoints"


@pytest.mark.parametrize(
    "source, changes",
    [
        ("xlnet-Model", {"attn_type": "both"}),
        ("xlnet-Model", {"bi_data": True}),
        ("xlnet-Model", {"clamp_len": 5}),
        ("xlnet-Model", {"same_length": True}),
        ("xlnet-Model", {"d_head": 5}),
        ("xlnet-LMHeadModel", {"tie_word_embeddings": False}),
        ("xlnet-SequenceClassification", {"summary_type": "mean"}),
        ("xlnet-SequenceClassification", {"summary_use_proj": False}),
        ("reformer-Model", {"attn_layers": "lsh"}),
        ("reformer-Model", {"attn_layers": ["local", "magic", "lsh"]}),
        ("reformer-Model", {"attn_layers": ["lsh"] * 10**4}),
        ("reformer-Model", {"lsh_num_chunks_after": -1}),
        ("reformer-Model", {"lsh_num_chunks_before": 65}),
        ("reformer-ModelWithLMHead", {"lsh_num_chunks_after": 1}),
        ("reformer-ModelWithLMHead", {"local_num_chunks_after": 1}),
        ("reformer-Model", {"num_buckets": [2, 3]}),
        ("reformer-Model", {"num_buckets": [2, 2**30]}),
        ("reformer-Model", {"num_buckets": 2**30}),
        ("reformer-Model", {"num_hashes": 10**6}),
        ("reformer-Model", {"local_attn_chunk_length": 10**9}),
        ("reformer-MaskedLM", {"axial_pos_shape": [8]}),
        ("reformer-MaskedLM", {"axial_pos_embds_dim": [6.0, 10.0]}),
        ("reformer-MaskedLM", {"is_decoder": True}),
        ("reformer-ModelWithLMHead", {"is_decoder": False}),
    ],
)
def test_a_setting_is_refused_by_name(source, changes, tmp_path):
    folder = pathlib.Path(shutil.copytree(DATA / source, tmp_path / "checkpoint"))
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(checkpoints.ConfigError) as raised:
        checkpoints.from_huggingface(folder, verbose=0)
    assert next(iter(changes)) in str(raised.value)


def test_another_head_on_a_language_model_leaves_its_query_stream_out():
    from keras_transformer import tasks

    model = checkpoints.from_huggingface(
        DATA / "xlnet-LMHeadModel", task=lambda backbone: tasks.Tagger(backbone, 4), verbose=0
    )
    assert sorted(model.input) == ["padding_mask", "segment_ids", "token_ids"]
    assert model.output_shape == (None, None, 4)


def test_buckets_for_the_longest_rows_where_a_config_has_none(tmp_path):
    folder = pathlib.Path(shutil.copytree(DATA / "reformer-Model", tmp_path / "checkpoint"))
    config = json.loads((folder / "config.json").read_text()) | {"num_buckets": None}
    (folder / "config.json").write_text(json.dumps(config))
    model = checkpoints.from_huggingface(folder, verbose=0)
    # 72 places are 4 whole chunks of 16.
    assert {weight.shape for weight in model.weights if weight.path.endswith("rotations")} == {(2, 6, 2 * 8 // 2)}
