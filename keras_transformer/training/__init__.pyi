from .adapters import (
    add_lora as add_lora,
)
from .adapters import (
    load_lora as load_lora,
)
from .adapters import (
    merge_lora as merge_lora,
)
from .adapters import (
    save_lora as save_lora,
)
from .assignment import (
    assign as assign,
)
from .average_precision import (
    average_precision as average_precision,
)
from .averaged_weights import (
    AveragedWeights as AveragedWeights,
)
from .coding_rate import (
    CodingRate as CodingRate,
)
from .coding_rate import (
    coding_rates as coding_rates,
)
from .communication import (
    Collective as Collective,
)
from .communication import (
    communication as communication,
)
from .comparison_loss import (
    ComparisonLoss as ComparisonLoss,
)
from .compression.aware_model import (
    learned_model as learned_model,
)
from .compression.aware_model import (
    learned_weights as learned_weights,
)
from .compression.aware_model import (
    quantization_aware as quantization_aware,
)
from .compression.distillation import (
    Distillation as Distillation,
)
from .compression.distillation_losses import (
    AttentionMaps as AttentionMaps,
)
from .compression.distillation_losses import (
    HiddenStates as HiddenStates,
)
from .compression.distillation_losses import (
    SoftLogits as SoftLogits,
)
from .compression.importance import (
    Importance as Importance,
)
from .compression.importance import (
    measure_importance as measure_importance,
)
from .compression.pruning import (
    prune as prune,
)
from .compression.train_scales import (
    train_scales as train_scales,
)
from .contrastive_loss import (
    ContrastiveLoss as ContrastiveLoss,
)
from .ctc_loss import (
    CTCLoss as CTCLoss,
)
from .detection_loss import (
    DetectionLoss as DetectionLoss,
)
from .detection_metrics import (
    DetectionMetrics as DetectionMetrics,
)
from .distribution import (
    distributed as distributed,
)
from .distribution import (
    is_chief as is_chief,
)
from .draft_head_trainer import (
    DraftHeadTrainer as DraftHeadTrainer,
)
from .draft_head_trainer import (
    draft_examples as draft_examples,
)
from .errors import (
    AdapterError as AdapterError,
)
from .errors import (
    CorruptCheckpointError as CorruptCheckpointError,
)
from .errors import (
    DataError as DataError,
)
from .errors import (
    DistributionError as DistributionError,
)
from .errors import (
    NonFiniteError as NonFiniteError,
)
from .errors import (
    PruningError as PruningError,
)
from .errors import (
    TrainingCheckpointError as TrainingCheckpointError,
)
from .fused_adamw import (
    FusedAdamW as FusedAdamW,
)
from .layerwise_rates import (
    LayerwiseAdamW as LayerwiseAdamW,
)
from .layerwise_rates import (
    layerwise_decay as layerwise_decay,
)
from .losses import (
    MaskedCrossentropy as MaskedCrossentropy,
)
from .metrics import (
    MaskedAccuracy as MaskedAccuracy,
)
from .metrics import (
    Perplexity as Perplexity,
)
from .monitoring.check_data import (
    CheckData as CheckData,
)
from .monitoring.check_data import (
    check_batch as check_batch,
)
from .monitoring.dead_experts import (
    DeadExperts as DeadExperts,
)
from .monitoring.find_learning_rate import (
    LearningRates as LearningRates,
)
from .monitoring.find_learning_rate import (
    find_learning_rate as find_learning_rate,
)
from .monitoring.gradients_by_layer import (
    GradientsByLayer as GradientsByLayer,
)
from .monitoring.loss_spikes import (
    LossSpike as LossSpike,
)
from .monitoring.loss_spikes import (
    LossSpikes as LossSpikes,
)
from .monitoring.nan_origin import (
    NaNOrigin as NaNOrigin,
)
from .monitoring.replay import (
    read_batch as read_batch,
)
from .monitoring.replay import (
    replay as replay,
)
from .monitoring.stop_at_nan import (
    StopAtNaN as StopAtNaN,
)
from .next_token_trainer import (
    NextTokenTrainer as NextTokenTrainer,
)
from .policy_gradient_trainer import (
    PolicyGradientTrainer as PolicyGradientTrainer,
)
from .recomputation import (
    recompute_blocks as recompute_blocks,
)
from .redraw_features import (
    RedrawFeatures as RedrawFeatures,
)
from .schedules import (
    InverseSquareRoot as InverseSquareRoot,
)
from .schedules import (
    WarmupCosine as WarmupCosine,
)
from .sharded_checkpoint import (
    ShardedCheckpoint as ShardedCheckpoint,
)
from .sigmoid_contrastive_loss import (
    SigmoidContrastiveLoss as SigmoidContrastiveLoss,
)
from .tensorboard_figures import (
    TensorBoardFigures as TensorBoardFigures,
)
from .text_metrics import (
    TextMetrics as TextMetrics,
)
from .training_checkpoint import (
    TrainingCheckpoint as TrainingCheckpoint,
)
from .width_rates import (
    width_multipliers as width_multipliers,
)
