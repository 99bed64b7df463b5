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
from .checkpointing.sharded_checkpoint import (
    ShardedCheckpoint as ShardedCheckpoint,
)
from .checkpointing.training_checkpoint import (
    TrainingCheckpoint as TrainingCheckpoint,
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
from .distribution.communication import (
    Collective as Collective,
)
from .distribution.communication import (
    communication as communication,
)
from .distribution.distributed import (
    distributed as distributed,
)
from .distribution.replicas import (
    is_chief as is_chief,
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
from .losses.assignment import (
    assign as assign,
)
from .losses.comparison_loss import (
    ComparisonLoss as ComparisonLoss,
)
from .losses.contrastive_loss import (
    ContrastiveLoss as ContrastiveLoss,
)
from .losses.ctc_loss import (
    CTCLoss as CTCLoss,
)
from .losses.detection_loss import (
    DetectionLoss as DetectionLoss,
)
from .losses.masked_crossentropy import (
    MaskedCrossentropy as MaskedCrossentropy,
)
from .losses.sigmoid_contrastive_loss import (
    SigmoidContrastiveLoss as SigmoidContrastiveLoss,
)
from .metrics.average_precision import (
    average_precision as average_precision,
)
from .metrics.detection_metrics import (
    DetectionMetrics as DetectionMetrics,
)
from .metrics.text_metrics import (
    TextMetrics as TextMetrics,
)
from .metrics.token_metrics import (
    MaskedAccuracy as MaskedAccuracy,
)
from .metrics.token_metrics import (
    Perplexity as Perplexity,
)
from .monitoring.check_data import (
    CheckData as CheckData,
)
from .monitoring.check_data import (
    check_batch as check_batch,
)
from .monitoring.coding_rate import (
    CodingRate as CodingRate,
)
from .monitoring.coding_rate import (
    coding_rates as coding_rates,
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
from .monitoring.tensorboard_figures import (
    TensorBoardFigures as TensorBoardFigures,
)
from .optimizers.averaged_weights import (
    AveragedWeights as AveragedWeights,
)
from .optimizers.fused_adamw import (
    FusedAdamW as FusedAdamW,
)
from .optimizers.layerwise_rates import (
    LayerwiseAdamW as LayerwiseAdamW,
)
from .optimizers.layerwise_rates import (
    layerwise_decay as layerwise_decay,
)
from .optimizers.schedules import (
    InverseSquareRoot as InverseSquareRoot,
)
from .optimizers.schedules import (
    WarmupCosine as WarmupCosine,
)
from .optimizers.width_rates import (
    width_multipliers as width_multipliers,
)
from .recomputation import (
    recompute_blocks as recompute_blocks,
)
from .redraw_features import (
    RedrawFeatures as RedrawFeatures,
)
from .trainers.draft_head_trainer import (
    DraftHeadTrainer as DraftHeadTrainer,
)
from .trainers.draft_head_trainer import (
    draft_examples as draft_examples,
)
from .trainers.next_token_trainer import (
    NextTokenTrainer as NextTokenTrainer,
)
from .trainers.policy_gradient_trainer import (
    PolicyGradientTrainer as PolicyGradientTrainer,
)
