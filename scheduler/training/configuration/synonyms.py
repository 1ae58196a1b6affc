"""Names by which other libraries know the options of a training run, for the hints of error messages."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

_LIKE = 0.7  # difflib's ratio above which names are suggested
_SYNONYMS = {
    "alpha": ("elasticity", "rho"),
    "batch_size": ("batch", "bs", "mini_batch", "minibatch_size", "per_device_train_batch_size"),
    "best_metric": ("monitor", "save_best", "metric_for_best_model"),
    "checkpoint_rounds": ("checkpoint_every", "save_every", "save_steps", "save_freq"),
    "clip_norm": ("clip_grad_norm", "gradient_clip_val", "grad_clip", "max_grad_norm", "clipnorm", "clip"),
    "clip_value": ("clipvalue", "clip_grad_value"),
    "compute": ("precision", "dtype", "amp", "mixed_precision", "fp16", "bf16"),
    "devices": ("device", "gpu", "gpus", "accelerator", "cuda"),
    "early_stopping": ("patience", "min_delta", "stop_early"),
    "ema": ("ema_decay", "polyak", "swa"),
    "epochs": ("epoch", "max_epochs", "num_epochs", "n_epochs", "num_train_epochs"),
    "evaluate_every": ("eval_every", "eval_steps", "val_check_interval", "validation_freq", "test_every"),
    "keep_checkpoints": ("save_total_limit", "max_to_keep", "save_top_k"),
    "label_smoothing": ("smoothing", "smooth"),
    "launch_ahead": ("prefetch",),
    "learning_rate": ("lr", "rate", "eta", "step_size"),
    "learning_rate_drops": ("milestones", "lr_steps", "lr_drops", "decay_epochs", "boundaries"),
    "max_seconds": ("max_time", "time_limit", "timeout"),
    "mixup": ("mixup_alpha", "mix_up"),
    "optimizer": ("opt", "optim", "optimiser"),
    "optimizer_options": ("beta1", "beta2", "epsilon", "eps", "betas", "nesterov", "adam_beta1"),
    "output": ("out", "out_dir", "output_dir", "save_dir", "logdir", "log_dir", "checkpoint_dir", "o"),
    "replicas_per_device": ("replicas", "num_replicas", "n_replicas", "learners", "workers", "k"),
    "resume": ("checkpoint", "ckpt", "load", "restore", "resume_from_checkpoint", "initial_checkpoint"),
    "schedule": ("scheduler", "lr_schedule", "lr_scheduler", "sched", "lr_scheduler_type"),
    "seed": ("random_seed", "manual_seed", "random_state"),
    "sync": ("strategy", "averaging", "synchronisation", "synchronization"),
    "target_accuracy": ("target", "stop_accuracy", "goal"),
    "tau": ("sync_period", "sync_every", "local_steps", "averaging_period"),
    "trace": ("profile", "profiler", "timeline"),
    "warmup_epochs": ("warmup", "warm_up", "warmup_steps", "warmup_ratio"),
    "weight_decay": ("wd", "l2", "decay", "l2_regularization"),
    "weights": ("pretrained", "init_weights", "initial_weights", "pretrained_weights", "init_from"),
}
_NAMES = {synonym: name for name, synonyms in _SYNONYMS.items() for synonym in synonyms}


def nearest_option(text: str, known: Collection[str]) -> str | None:
    """The known option that a mistyped or foreign name stands for, or None. All names with underscores."""
    name = text.strip("-").replace("-", "_").lower()[:80]
    if _NAMES.get(name) in known:
        return _NAMES[name]
    near = get_close_matches(name, [*known, *(own for own in _NAMES if _NAMES[own] in known)], 1, _LIKE)
    return _NAMES.get(near[0], near[0]) if near else None
