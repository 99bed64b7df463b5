"""Writes `pictures/`, a folder for each kind of image processor, and `images.npz`: what transformers makes of them.

Needs transformers with Pillow, and torchvision 0.28 for the processor of DINOv3; run from the root of the repository:
`python tests/data/processors/make_images.py`.
"""

import json
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from transformers import DINOv3ViTImageProcessor
from transformers.image_utils import load_image
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.sam.image_processing_pil_sam import SamImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil
from transformers.models.yolos.image_processing_pil_yolos import YolosImageProcessorPil

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
PROCESSORS = {
    "vit": ViTImageProcessorPil(size={"height": 12, "width": 16}),
    "swin": ViTImageProcessorPil(size={"height": 16, "width": 16}, resample=3, **IMAGENET),
    "deit": DeiTImageProcessorPil(size={"height": 18, "width": 18}, crop_size={"height": 13, "width": 14}, **IMAGENET),
    "bit": BitImageProcessorPil(size={"shortest_edge": 20}, crop_size={"height": 16, "width": 16}),
    "dinov2": BitImageProcessorPil(size={"shortest_edge": 18}, crop_size={"height": 14, "width": 14}, **IMAGENET),
    # The crop is larger than what is left of the pictures.
    "clip": CLIPImageProcessorPil(size={"shortest_edge": 11}, crop_size={"height": 16, "width": 16}),
    "dinov3": DINOv3ViTImageProcessor(size={"height": 12, "width": 16}),
    # More pixels than the pictures have, with overshoots beyond the levels of pixels.
    "dinov3_crop": DINOv3ViTImageProcessor(
        size={"height": 40, "width": 48}, resample=3, do_center_crop=True, crop_size={"height": 32, "width": 30}
    ),
    # The longest edge, and padding to a fixed size.
    "sam": SamImageProcessorPil(size={"longest_edge": 20}, pad_size={"height": 21, "width": 23}),
    "siglip": SiglipImageProcessorPil(size={"height": 15, "width": 15}),
    "longest": BitImageProcessorPil(
        size={"shortest_edge": 15, "longest_edge": 18}, crop_size={"height": 17, "width": 17}
    ),
    "box": BitImageProcessorPil(size={"max_height": 17, "max_width": 13}, crop_size={"height": 12, "width": 12}),
    "untouched": BitImageProcessorPil(
        do_resize=False, do_rescale=False, do_normalize=False, crop_size={"height": 12, "width": 12}
    ),
}
# Multiples of 16; the longest edge decides for the tall pictures. Large, in a file of its own.
YOLOS = YolosImageProcessorPil(size={"shortest_edge": 40, "longest_edge": 70}, resample=3)
# Patches in place of images, in a file of its own.
NAFLEX = Siglip2ImageProcessorPil(patch_size=4, max_num_patches=20)
# As files were written by older versions, with lone numbers for sizes.
OLD = {
    "old_clip": {
        "crop_size": 12,
        "do_center_crop": True,
        "do_normalize": True,
        "do_resize": True,
        "feature_extractor_type": "CLIPFeatureExtractor",
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "resample": 3,
        "size": 14,
    },
    "old_vit": {
        "do_normalize": True,
        "do_resize": True,
        "feature_extractor_type": "ViTFeatureExtractor",
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "resample": 2,
        "size": 14,
    },
}
OLD_CLASSES = {"old_clip": CLIPImageProcessorPil, "old_vit": ViTImageProcessorPil}


def draw():
    """Pictures of several modes and proportions."""
    generator = np.random.default_rng(0)
    PICTURES.mkdir(exist_ok=True)
    wide = Image.fromarray(generator.integers(0, 256, (9, 13, 3), "uint8")).resize((53, 37), Image.Resampling.BICUBIC)
    ImageDraw.Draw(wide).ellipse((8, 5, 30, 28), fill=(250, 30, 10), outline=(0, 0, 255))
    wide.save(PICTURES / "wide.png")
    tall = Image.fromarray(generator.integers(0, 256, (31, 17, 3), "uint8"))
    tall.save(PICTURES / "tall.png")
    Image.fromarray(generator.integers(0, 256, (22, 29), "uint8")).save(PICTURES / "grey.png")
    clear = Image.fromarray(generator.integers(0, 256, (19, 23, 4), "uint8"), "RGBA")
    clear.save(PICTURES / "clear.png")
    wide.quantize(8).save(PICTURES / "palette.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # Lies on its side.
    tall.save(PICTURES / "lying.png", exif=exif)
    return sorted(path.name for path in PICTURES.glob("*.png"))


def write(name, config, processor, names):
    (HERE / name).mkdir(exist_ok=True)
    (HERE / name / "preprocessor_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    results = {}
    for picture in names:
        # As files, but where transparency would be dropped.
        if picture == "clear.png":
            image = Image.open(PICTURES / picture)
            if not processor.do_convert_rgb:
                continue
        else:
            image = load_image(str(PICTURES / picture))
        pixels = processor(image, return_tensors="np")["pixel_values"]
        results[f"{name}/{picture}"] = np.ascontiguousarray(pixels[0].transpose(1, 2, 0).astype("float32"))
    return results


def write_patches():
    """Of images of any size and shape: what the names of the inputs of `models.SigLIP2Vision` stand for."""
    names = ["wide.png", "tall.png", "palette.png"]
    found = NAFLEX([load_image(str(PICTURES / name)) for name in names], return_tensors="np")
    (HERE / "naflex").mkdir(exist_ok=True)
    config = json.dumps(json.loads(NAFLEX.to_json_string()), indent=1, sort_keys=True)
    (HERE / "naflex" / "preprocessor_config.json").write_text(config + "\n")
    np.savez_compressed(
        HERE / "naflex" / "patches.npz",
        patches=found["pixel_values"].astype("float32"),
        patch_grid=found["spatial_shapes"],
        patch_mask=found["pixel_attention_mask"].astype(bool),
        names=names,
    )


def main():
    write_patches()
    names, expected = draw(), {}
    for name, processor in PROCESSORS.items():
        expected.update(write(name, json.loads(processor.to_json_string()), processor, names))
    for name, config in OLD.items():
        arguments = {key: value for key, value in config.items() if not key.endswith("_type")}
        expected.update(write(name, config, OLD_CLASSES[name](**arguments), names))
    nested = {
        "image_processor": json.loads(PROCESSORS["clip"].to_json_string()),
        "processor_class": "CLIPProcessor",
    }
    (HERE / "nested").mkdir(exist_ok=True)
    (HERE / "nested" / "processor_config.json").write_text(json.dumps(nested, indent=1, sort_keys=True) + "\n")
    np.savez_compressed(HERE / "images.npz", **expected)
    results = write("yolos", json.loads(YOLOS.to_json_string()), YOLOS, ["wide.png", "tall.png"])
    np.savez_compressed(HERE / "yolos" / "images.npz", **results)


if __name__ == "__main__":
    main()
