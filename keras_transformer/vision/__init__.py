"""Image processing, and layers that turn images into tokens."""

from keras_transformer.vision.box_refinement import BoxRefinement
from keras_transformer.vision.box_targets import box_targets
from keras_transformer.vision.boxes import BOX_FORMATS, box_iou, convert_boxes, generalized_box_iou
from keras_transformer.vision.convnext_block import ConvNeXtBlock
from keras_transformer.vision.detection_tokens import DetectionTokens
from keras_transformer.vision.distribution_bins import DistributionBins
from keras_transformer.vision.distribution_refinement import DistributionRefinement
from keras_transformer.vision.dynamic_resolution_processor import DynamicResolutionProcessor
from keras_transformer.vision.each_image import EachImage
from keras_transformer.vision.errors import ImageError, ImageProcessorError
from keras_transformer.vision.fold_windows import FoldWindows, UnfoldWindows
from keras_transformer.vision.grid_positions import GridPositions
from keras_transformer.vision.grounding import Entity, read_grounding, write_boxes
from keras_transformer.vision.image_positions import ImagePositions
from keras_transformer.vision.images_before_text import ImagesBeforeText
from keras_transformer.vision.images_in_text import ImagesInText
from keras_transformer.vision.involution import Involution
from keras_transformer.vision.mask_targets import mask_targets
from keras_transformer.vision.naflex_embedding import NaFlexEmbedding
from keras_transformer.vision.naflex_processor import NaFlexProcessor
from keras_transformer.vision.object_queries import ObjectQueries
from keras_transformer.vision.patch_coordinates import PatchCoordinates
from keras_transformer.vision.patch_embedding import PatchEmbedding
from keras_transformer.vision.patch_merging import PatchMerging
from keras_transformer.vision.patches_in_text import PatchesInText
from keras_transformer.vision.place_images import FillImages, PlaceImages, mark_images
from keras_transformer.vision.processor import ImageProcessor
from keras_transformer.vision.prompts.fold_prompts import FoldPrompts, UnfoldPrompts
from keras_transformer.vision.prompts.grid_centers import GridCenters
from keras_transformer.vision.prompts.mask_embedding import MaskEmbedding
from keras_transformer.vision.prompts.output_tokens import OutputTokens
from keras_transformer.vision.prompts.point_embedding import PointEmbedding, PointMask
from keras_transformer.vision.prompts.prompt_processor import PromptProcessor
from keras_transformer.vision.prompts.random_fourier_positions import RandomFourierPositions
from keras_transformer.vision.query_selection import QuerySelection
from keras_transformer.vision.resampler import Resampler
from keras_transformer.vision.resize_like import ResizeLike
from keras_transformer.vision.resize_mask import ResizeMask
from keras_transformer.vision.sine_positions import SinePositions
from keras_transformer.vision.sinusoidal_grid import SinusoidalGrid
from keras_transformer.vision.to_grid import ToGrid
from keras_transformer.vision.unpatchify import Unpatchify
from keras_transformer.vision.unroll_windows import UnrollWindows
from keras_transformer.vision.upsample_like import UpsampleLike
from keras_transformer.vision.window_coordinates import WindowCoordinates

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
