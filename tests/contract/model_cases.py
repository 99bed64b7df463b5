"""A small instance of each model and task, with inputs. To add a model, add its line here."""

import keras
import numpy as np

from keras_transformer import audio, models, positions, tasks

SIZE = models.Size(num_layers=2, hidden_dim=16, num_heads=2, intermediate_dim=24)
VOCABULARY = 23
LENGTH = 8
END_ID, BEGIN_IMAGE_ID = 1, 2
# Ranks of inputs that have several images for each row.
IN_TEXT = {"images": 5, "patches": 5, "patch_grid": 3}


def _vision(**options):
    return models.CLIPVision(SIZE, patch_size=4, image_size=8, **options)


def _window_vision():
    return models.Qwen2_5VLVision(SIZE, patch_dim=5, window_size=1, full_attention_blocks=(1,))


def _clip():
    text = models.CLIPText(SIZE, VOCABULARY, max_sequence_length=LENGTH, end_id=END_ID, projection_dim=6)
    return models.CLIP(vision=_vision(projection_dim=6), text=text)


def _siglip_vision():
    return models.SigLIPVision(SIZE, patch_size=4, image_size=8)


def _siglip_text():
    return models.SigLIPText(SIZE, VOCABULARY, max_sequence_length=LENGTH)


def _speech(norm):
    """Arguments of encoders of speech: eight samples give three frames."""
    encoder = audio.FeatureEncoder((5, 6), kernel_sizes=(3, 2), strides=(2, 1), norm=norm)
    return {"feature_encoder": encoder, "position": audio.ConvolutionalPosition(kernel_size=4, num_groups=2)}


def _streaming_speech():
    position = audio.ConvolutionalPosition(kernel_size=4, num_groups=2, padding="causal")
    return models.StreamingWav2Vec2(SIZE, **_speech("layer") | {"position": position}, chunk_length=2, chunks_before=1)


def _retro():
    encoder = models.RetroSize(num_layers=2, hidden_dim=16, num_heads=2, intermediate_dim=24, key_dim=8)
    return models.RETRO(SIZE, VOCABULARY, encoder_size=encoder, chunk_size=4, retrieval_layers=(1,))


def _vits():
    flow = audio.ConvolutionFlow(audio.DepthSeparableConvolutions(1), num_bins=3)
    return models.VITS(
        SIZE,
        VOCABULARY,
        latent_dim=6,
        num_speakers=VOCABULARY,
        speaker_dim=4,
        window=2,
        duration_predictor=audio.StochasticDurationPredictor(flow, num_flows=1),
        num_flows=2,
        flow=audio.CouplingFlow(8, audio.WaveNet(2, kernel_size=3)),
        decoder=audio.HiFiGAN(8, (3, 2), (5, 4), (3,), ((1, 2),)),
    )


# The first stage has a 5 x 7 grid and keys of 2 x 3.
SEGFORMER_SIZE = models.SegFormerSize((8, 12), (1, 2), (2, 3), (3, 3), (2, 2), (2, 1), (2, 1))

MODELS = {
    "vit": lambda: models.ViT(SIZE, patch_size=4, image_size=8),
    "deit": lambda: models.DeiT(SIZE, patch_size=4, image_size=8),
    "dinov2": lambda: models.DINOv2(SIZE, patch_size=4, image_size=8, gated=True, mask_token=False, layer_scale=0.3),
    "dinov3": lambda: models.DINOv3(SIZE, patch_size=4, image_size=8, gated=True, mask_token=False, layer_scale=0.3),
    "swin": lambda: models.Swin(
        models.SwinSize(hidden_dim=8, num_layers=(2, 2), num_heads=(2, 4)), patch_size=2, image_size=12, window_size=3
    ),
    "convnext": lambda: models.ConvNeXt(models.ConvNeXtSize((4, 8), (1, 2)), image_size=16, layer_scale=0.3),
    "dit": lambda: models.DiT(SIZE, patch_size=4, image_size=8, num_channels=3, num_classes=VOCABULARY),
    "mm_dit": lambda: models.MMDiT(
        SIZE, 4, 8, num_channels=3, text_dim=6, pooled_text_dim=5, query_key_norm="rms_norm"
    ),
    "flux": lambda: models.Flux(
        SIZE,
        4,
        8,
        num_single_layers=2,
        num_channels=3,
        text_dim=6,
        pooled_text_dim=5,
        rotary_features=(2, 4),
        guidance_embedding=True,
    ),
    "image_autoencoder": lambda: models.ImageAutoencoder(
        8, num_channels=2, widths=(4, 8), blocks_per_level=1, latent_channels=3, num_groups=2
    ),
    "segformer": lambda: models.SegFormer(SEGFORMER_SIZE, (9, 14)),
    "sam": lambda: models.SAM(models.SAMSize(2, 8, 2, 16, (1,)), 4, (8, 12), output_dim=16, window_size=2),
    "rt_detr": lambda: models.RTDETR(
        models.RTDETRSize(12, 2, 3, 14, models.HybridEncoderSize(8, 1, 2, 10, depth=1)),
        backbone=models.ResNet(models.ResNetSize((8, 8, 12, 8), (1, 1, 1, 1), stem_dim=4), 32, variant="d"),
        num_classes=3,
        num_queries=5,
    ),
    "d_fine": lambda: models.DFINE(
        models.DFINESize(12, 2, 3, 14, models.HybridEncoderSize(8, 1, 2, 10, depth=1)),
        backbone=MODELS["hgnet_v2"](),
        num_classes=3,
        num_queries=5,
    ),
    "hgnet_v2": lambda: models.HGNetV2(
        models.HGNetV2Size(
            (4, 6),
            (
                models.HGNetV2Stage(3, 6, 1, 2, strides=None),
                models.HGNetV2Stage(3, 6, 1, 2),
                models.HGNetV2Stage(4, 8, 2, 1, 5, True),
                models.HGNetV2Stage(4, 8, 1, 1),
            ),
        ),
        (32, 48),
        learnable_affine=True,
    ),
    "detr": lambda: models.DETR(
        models.DETRSize(16, (1, 2), (2, 4), (24, 20)), backbone=MODELS["resnet"](), num_queries=3
    ),
    "yolos": lambda: models.YOLOS(SIZE, patch_size=4, image_size=8, num_detection_tokens=3, positions_in_blocks=True),
    "crate": lambda: models.CRATE(SIZE._replace(intermediate_dim=16), patch_size=4, image_size=8),
    "rednet": lambda: models.RedNet((1, 1, 1, 1), image_size=32, hidden_dim=16, kernel_size=3, group_channels=4),
    "resnet": lambda: models.ResNet(models.ResNetSize((8, 16), (1, 1), stem_dim=8), (18, 27)),
    "clip": _clip,
    "clip_text": lambda: models.CLIPText(SIZE, VOCABULARY, max_sequence_length=LENGTH, end_id=END_ID),
    "clip_vision": _vision,
    "siglip": lambda: models.SigLIP(vision=_siglip_vision(), text=_siglip_text()),
    "siglip_text": lambda: _siglip_text(),
    "siglip_vision": lambda: _siglip_vision(),
    "siglip2_vision": lambda: models.SigLIP2Vision(SIZE, patch_size=2, grid_size=3),
    "kosmos": lambda: models.Kosmos(SIZE, VOCABULARY, _vision(), begin_image_id=BEGIN_IMAGE_ID, num_image_tokens=3),
    "kosmos2": lambda: models.Kosmos2(
        SIZE, VOCABULARY, vision=_vision(), begin_image_id=BEGIN_IMAGE_ID, num_image_tokens=3
    ),
    "paligemma": lambda: models.PaliGemma(
        SIZE, VOCABULARY, models.SigLIPVision(SIZE, patch_size=4, image_size=8, use_head=False), image_id=BEGIN_IMAGE_ID
    ),
    "qwen2_5_vl": lambda: models.Qwen2_5VL(SIZE, VOCABULARY, _window_vision(), image_id=BEGIN_IMAGE_ID),
    "qwen2_5_vl_vision": lambda: _window_vision(),
    "moonshine": lambda: models.Moonshine(SIZE, VOCABULARY, num_samples=1700),
    "transformer": lambda: models.Transformer(SIZE, VOCABULARY),
    "lite_transformer": lambda: models.LiteTransformer(SIZE, VOCABULARY, kernel_sizes=(3, 5)),
    "evolved_transformer": lambda: models.EvolvedTransformer(
        models.EvolvedSize(1, 1, hidden_dim=16, num_heads=2), VOCABULARY
    ),
    "encoder": lambda: models.Encoder(SIZE, VOCABULARY, max_sequence_length=16),
    "decoder": lambda: models.Decoder(SIZE, VOCABULARY, max_sequence_length=16),
    "albert": lambda: models.ALBERT(SIZE, VOCABULARY, embedding_dim=6, max_sequence_length=16),
    "bert": lambda: models.BERT(SIZE, VOCABULARY, max_sequence_length=16),
    "deberta": lambda: models.DeBERTa(
        SIZE, VOCABULARY, relative_embedding=positions.RelativeEmbedding(5, num_buckets=4, norm="layer_norm")
    ),
    "bigbird": lambda: models.BigBird(SIZE, VOCABULARY, block_size=2, num_random_blocks=1, max_sequence_length=16),
    "distilbert": lambda: models.DistilBERT(SIZE, VOCABULARY, max_sequence_length=16),
    "electra": lambda: models.ELECTRA(SIZE, VOCABULARY, embedding_dim=6, max_sequence_length=16),
    "layoutlm": lambda: models.LayoutLM(SIZE, VOCABULARY, max_sequence_length=16, num_box_coordinates=VOCABULARY),
    "longformer": lambda: models.Longformer(
        SIZE, VOCABULARY, attention_window=4, max_global_tokens=2, max_sequence_length=16
    ),
    "modernbert": lambda: models.ModernBERT(SIZE, VOCABULARY, local_window=3),
    "mpnet": lambda: models.MPNet(SIZE, VOCABULARY, max_sequence_length=16),
    "roberta": lambda: models.RoBERTa(SIZE, VOCABULARY, max_sequence_length=16),
    "roformer": lambda: models.RoFormer(SIZE, VOCABULARY),
    "xlnet": lambda: models.XLNet(SIZE, VOCABULARY),
    "gpt2": lambda: models.GPT2(SIZE, VOCABULARY, max_sequence_length=16),
    "llama": lambda: models.Llama(SIZE, VOCABULARY, num_key_value_heads=1),
    "mistral": lambda: models.Mistral(SIZE, VOCABULARY, window=3),
    "mixtral": lambda: models.Mixtral(SIZE, VOCABULARY),
    "qwen2": lambda: models.Qwen2(SIZE, VOCABULARY),
    "qwen3": lambda: models.Qwen3(SIZE, VOCABULARY),
    "gemma": lambda: models.Gemma(SIZE, VOCABULARY),
    "gemma2": lambda: models.Gemma2(SIZE, VOCABULARY, window=(3, None)),
    "gemma3": lambda: models.Gemma3(SIZE, VOCABULARY, window=(3, None)),
    "gemma3n": lambda: models.Gemma3n(
        SIZE, VOCABULARY, num_sharing_blocks=1, window=(3,), streams=models.Gemma3nStreams(3, 1, 2.0, True, 2, 4)
    ),
    "bloom": lambda: models.BLOOM(SIZE, VOCABULARY),
    "reformer": lambda: models.Reformer(SIZE, VOCABULARY, key_dim=8, dropout=0.0, max_sequence_length=64),
    "retnet": lambda: models.RetNet(SIZE, VOCABULARY, chunk_size=4),
    "rwkv": lambda: models.RWKV(SIZE, VOCABULARY),
    "rwkv7": lambda: models.RWKV7(SIZE, VOCABULARY, ranks=models.RWKV7Ranks(3, 4, 5, 2), chunk_size=4),
    "s4": lambda: models.S4Model(SIZE, VOCABULARY),
    "transformer_xl": lambda: models.TransformerXL(SIZE, VOCABULARY, segment_length=4, memory_length=3),
    "recurrent_memory": lambda: models.RecurrentMemory(SIZE, VOCABULARY, segment_length=4, num_memory_tokens=2),
    "retro": _retro,
    "yoco": lambda: models.YOCO(SIZE, VOCABULARY, window=3),
    "bahdanau": lambda: models.Bahdanau(models.BahdanauSize(6, 8, 5, 10), VOCABULARY),
    "bart": lambda: models.BART(SIZE, VOCABULARY, max_sequence_length=16),
    "mbart": lambda: models.MBart(SIZE, VOCABULARY, max_sequence_length=16),
    "marian": lambda: models.Marian(SIZE, VOCABULARY),
    "pegasus": lambda: models.Pegasus(SIZE, VOCABULARY),
    "whisper": lambda: models.Whisper(SIZE, VOCABULARY, num_mel_bins=4, num_frames=16, max_sequence_length=16),
    "whisper_encoder": lambda: models.WhisperEncoder(SIZE, num_mel_bins=4, num_frames=16),
    "wav2vec2": lambda: models.Wav2Vec2(SIZE, **_speech("group")),
    "streaming_wav2vec2": _streaming_speech,
    "xlsr": lambda: models.XLSR(SIZE, **_speech("layer"), adapter=audio.SpeechAdapter(1)),
    "hubert": lambda: models.HuBERT(SIZE, **_speech("group"), normalizes_features=False),
    "wavlm": lambda: models.WavLM(SIZE, **_speech("layer"), residual="pre"),
    "parakeet": lambda: models.Parakeet(
        SIZE, num_mel_bins=8, subsampling=audio.ConvolutionSubsampling(16, 4, num_layers=1), kernel_size=3
    ),
    "vits": _vits,
    "t5": lambda: models.T5(models.T5Size(*SIZE, head_dim=8), VOCABULARY),
    "t5_encoder": lambda: models.T5Encoder(models.T5Size(*SIZE, head_dim=8), VOCABULARY),
}

# Backbones of generating `LanguageModel`s.
GENERATIVE = sorted(
    {name for name, build in MODELS.items()}
    - {
        "vit",
        "deit",
        "dinov2",
        "dinov3",
        "swin",
        "convnext",
        "segformer",
        "sam",
        "detr",
        "rt_detr",
        "d_fine",
        "hgnet_v2",
        "yolos",
        "crate",
        "dit",
        "mm_dit",
        "flux",
        "image_autoencoder",
        "rednet",
        "resnet",
        "clip",
        "clip_text",
        "clip_vision",
        "encoder",
        "albert",
        "bert",
        "deberta",
    }
    - {"bigbird", "distilbert", "electra", "layoutlm", "longformer", "modernbert", "mpnet", "roberta", "roformer"}
    - {"siglip", "siglip_text", "siglip_vision", "siglip2_vision", "qwen2_5_vl_vision"}
    - {"xlnet", "reformer", "whisper_encoder", "t5_encoder"}
    - {"wav2vec2", "streaming_wav2vec2", "xlsr", "hubert", "wavlm", "parakeet", "vits"}
    - {"paligemma"}  # Reads a prefix in one call: see tests/models/test_paligemma.py.
    - {"retro"}  # Needs neighbors of each full chunk: see tests/models/test_retro.py.
)


def _encoder(**options):
    return models.Encoder(SIZE, VOCABULARY, max_sequence_length=16, **options)


def _speech_pretraining():
    backbone = models.Wav2Vec2(SIZE, **_speech("layer"), span_masking=audio.SpanMasking(0.5, 1, min_spans=1))
    return tasks.SpeechPretraining(backbone, quantizer=audio.GumbelQuantizer(2, 3, 4), projection_dim=6)


TASKS = {
    "image_classification": lambda: tasks.ImageClassifier(MODELS["vit"](), 3),
    "distilled_image_classification": lambda: tasks.DistilledImageClassifier(MODELS["deit"](), 3),
    "object_detection": lambda: tasks.ObjectDetector(MODELS["yolos"](), 3, auxiliary=True),
    "semantic_segmentation": lambda: tasks.SemanticSegmenter(MODELS["segformer"](), 4, hidden_dim=6, dropout=0.0),
    "prompted_segmentation": lambda: tasks.PromptedSegmenter(MODELS["sam"](), 2, tasks.MaskDecoderSize(1, 2, 24)),
    "language_model": lambda: tasks.LanguageModel(MODELS["decoder"]()),
    "masked_language_model": lambda: tasks.MaskedLanguageModel(_encoder()),
    "permutation_language_model": lambda: tasks.PermutationLanguageModel(MODELS["xlnet"]()),
    "sequence_classification": lambda: tasks.SequenceClassifier(_encoder(), 3),
    "pair_classification": lambda: tasks.PairClassifier(_encoder(num_segments=2), 3),
    "pair_matching": lambda: tasks.PairMatcher(_encoder(), 3),
    "tagging": lambda: tasks.Tagger(_encoder(), 5),
    "multiple_choice": lambda: tasks.MultipleChoice(tasks.SequenceClassifier(_encoder(), 1, activation=None)),
    "replaced_token_detection": lambda: tasks.ReplacedTokenDetector(_encoder()),
    "sentence_embedding": lambda: tasks.SentenceEmbedder(_encoder()),
    "speech_pretraining": _speech_pretraining,
    "speech_synthesis": lambda: tasks.SpeechSynthesizer(MODELS["vits"](), 8000, 1.5),
    "speech_recognition": lambda: tasks.SpeechRecognizer(MODELS["xlsr"](), 5, blank_id=2),
    "span_answers": lambda: tasks.SpanAnswerer(_encoder(num_segments=2)),
}

SAMPLERS = {
    "greedy": {},
    "random": {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.01},
    "beam": {"num_beams": 3, "length_penalty": 0.7, "num_results": 2, "early_stopping": True},
    "contrastive": {"top_k": 3, "alpha": 0.4},
    "tree_search": {"scorer": lambda texts: [0.1] * len(texts), "num_simulations": 5, "top_k": 4, "num_leaves": 2},
}


def inputs(model, batch_size=2, length=LENGTH, seed=0):
    """Returns arrays for the inputs of a model, by name and shape; without padding."""
    rng = np.random.default_rng(seed)
    return {
        tensor.name: _array(rng, tensor, batch_size, length)
        for tensor in sorted(keras.tree.flatten(model.input), key=lambda tensor: tensor.name)
    }


def _array(rng, tensor, batch_size, length):
    shape = [batch_size, *(length if size is None else size for size in tensor.shape[1:])]
    if tensor.name in IN_TEXT and len(tensor.shape) == IN_TEXT[tensor.name]:
        shape[1] = 1  # Images in text: one per row.
    if tensor.name == "patch_grid":
        return np.broadcast_to(np.array([2, length // 2], tensor.dtype), shape)
    if "retrieved" in tensor.name or tensor.name.startswith("neighbor"):
        shape[1] = length // 4
    if tensor.name == "frame_noise":
        shape[1] = 6 * length  # No text is cut off.
    if tensor.name == "speaking_rate":
        return rng.uniform(1.0, 2.0, shape).astype(tensor.dtype)
    if tensor.dtype == "bool":
        first = np.arange(shape[-1]) == 0
        if tensor.name == "prompt_has_mask":
            return np.broadcast_to(np.arange(shape[-1]) % 2 == 0, shape)
        if tensor.name == "targets":  # One token per target.
            return np.broadcast_to(np.eye(shape[-1], dtype=bool), shape)
        return np.broadcast_to(first, shape) if tensor.name == "global_mask" else np.ones(shape, bool)
    if "int" in tensor.dtype:
        ids = rng.integers(3, VOCABULARY, shape).astype(tensor.dtype)
        if tensor.name == "segment_ids":
            return ids % 2
        if tensor.name == "prompt_labels":  # Of all kinds, and none.
            return ids % 5 - 1
        if tensor.name == "boxes":
            return np.sort(ids, axis=-1)
        ids[..., 1], ids[..., -1] = BEGIN_IMAGE_ID, END_ID
        return ids
    return rng.uniform(size=shape).astype(tensor.dtype)
