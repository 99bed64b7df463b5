"""Image processing, and layers that turn images into tokens."""

from keras_transformer.vision.convnext_block import ConvNeXtBlock
from keras_transformer.vision.detection.box_refinement import BoxRefinement
from keras_transformer.vision.detection.box_targets import box_targets
from keras_transformer.vision.detection.boxes import BOX_FORMATS, box_iou, convert_boxes, generalized_box_iou
from keras_transformer.vision.detection.detection_tokens import DetectionTokens
from keras_transformer.vision.detection.distribution_bins import DistributionBins
from keras_transformer.vision.detection.distribution_refinement import DistributionRefinement
from keras_transformer.vision.detection.object_queries import ObjectQueries
from keras_transformer.vision.detection.query_selection import QuerySelection
from keras_transformer.vision.each_image import EachImage
from keras_transformer.vision.errors import ImageError, ImageProcessorError
from keras_transformer.vision.interleaved.grounding import Entity, read_grounding, write_boxes
from keras_transformer.vision.interleaved.images_before_text import ImagesBeforeText
from keras_transformer.vision.interleaved.images_in_text import ImagesInText
from keras_transformer.vision.interleaved.patches_in_text import PatchesInText
from keras_transformer.vision.interleaved.place_images import FillImages, PlaceImages, mark_images
from keras_transformer.vision.interleaved.resampler import Resampler
from keras_transformer.vision.involution import Involution
from keras_transformer.vision.patches.fold_windows import FoldWindows, UnfoldWindows
from keras_transformer.vision.patches.naflex_embedding import NaFlexEmbedding
from keras_transformer.vision.patches.patch_embedding import PatchEmbedding
from keras_transformer.vision.patches.patch_merging import PatchMerging
from keras_transformer.vision.patches.to_grid import ToGrid
from keras_transformer.vision.patches.unpatchify import Unpatchify
from keras_transformer.vision.patches.unroll_windows import UnrollWindows
from keras_transformer.vision.positions.grid_positions import GridPositions
from keras_transformer.vision.positions.image_positions import ImagePositions
from keras_transformer.vision.positions.patch_coordinates import PatchCoordinates
from keras_transformer.vision.positions.sine_positions import SinePositions
from keras_transformer.vision.positions.sinusoidal_grid import SinusoidalGrid
from keras_transformer.vision.positions.window_coordinates import WindowCoordinates
from keras_transformer.vision.processing.dynamic_resolution_processor import DynamicResolutionProcessor
from keras_transformer.vision.processing.mask_targets import mask_targets
from keras_transformer.vision.processing.naflex_processor import NaFlexProcessor
from keras_transformer.vision.processing.processor import ImageProcessor
from keras_transformer.vision.prompts.fold_prompts import FoldPrompts, UnfoldPrompts
from keras_transformer.vision.prompts.grid_centers import GridCenters
from keras_transformer.vision.prompts.mask_embedding import MaskEmbedding
from keras_transformer.vision.prompts.output_tokens import OutputTokens
from keras_transformer.vision.prompts.point_embedding import PointEmbedding, PointMask
from keras_transformer.vision.prompts.prompt_processor import PromptProcessor
from keras_transformer.vision.prompts.random_fourier_positions import RandomFourierPositions
from keras_transformer.vision.resizing.resize_like import ResizeLike
from keras_transformer.vision.resizing.resize_mask import ResizeMask
from keras_transformer.vision.resizing.upsample_like import UpsampleLike

__all__ = [
    "DynamicResolutionProcessor",
    "PatchesInText",
    "WindowCoordinates",
    "UnrollWindows",
    "ImagePositions",
    "UnfoldWindows",
    "FoldWindows",
    "BOX_FORMATS",
    "BoxRefinement",
    "ConvNeXtBlock",
    "DetectionTokens",
    "DistributionBins",
    "DistributionRefinement",
    "EachImage",
    "Entity",
    "FillImages",
    "FoldPrompts",
    "GridCenters",
    "GridPositions",
    "ImageError",
    "ImageProcessor",
    "ImageProcessorError",
    "ImagesBeforeText",
    "ImagesInText",
    "Involution",
    "MaskEmbedding",
    "ObjectQueries",
    "NaFlexEmbedding",
    "NaFlexProcessor",
    "OutputTokens",
    "PatchCoordinates",
    "PatchEmbedding",
    "PatchMerging",
    "PlaceImages",
    "PointEmbedding",
    "PointMask",
    "PromptProcessor",
    "RandomFourierPositions",
    "QuerySelection",
    "Resampler",
    "ResizeLike",
    "ResizeMask",
    "SinePositions",
    "UnfoldPrompts",
    "SinusoidalGrid",
    "ToGrid",
    "Unpatchify",
    "UpsampleLike",
    "box_iou",
    "box_targets",
    "convert_boxes",
    "generalized_box_iou",
    "mark_images",
    "mask_targets",
    "read_grounding",
    "write_boxes",
]
