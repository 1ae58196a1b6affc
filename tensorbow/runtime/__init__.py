"""Sessions, which run graphs, and the containers that store their variables."""

from tensorbow.runtime.config_proto import (
    AsConfig,
    ConfigProto,
    GPUOptions,
    GraphOptions,
    OptimizerOptions,
    RunMetadata,
    RunOptions,
)
from tensorbow.runtime.container import Container
from tensorbow.runtime.explain import Explanation
from tensorbow.runtime.global_step import (
    assert_global_step,
    create_global_step,
    get_global_step,
    get_or_create_global_step,
    global_step,
)
from tensorbow.runtime.initial_values import initial_values
from tensorbow.runtime.interactive_session import InteractiveSession
from tensorbow.runtime.loop_hooks import (
    FeedFnHook,
    FinalOpsHook,
    GlobalStepWaiterHook,
    LoggingTensorHook,
    NanTensorHook,
    SecondOrStepTimer,
)
from tensorbow.runtime.monitored import (
    MonitoredSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopAtStepHook,
)
from tensorbow.runtime.session import Session
from tensorbow.runtime.session_creators import SessionCreator
from tensorbow.runtime.session_targets import register_target

__all__ = [
    "AsConfig",
    "ConfigProto",
    "Container",
    "Explanation",
    "FeedFnHook",
    "FinalOpsHook",
    "GPUOptions",
    "GlobalStepWaiterHook",
    "GraphOptions",
    "InteractiveSession",
    "LoggingTensorHook",
    "MonitoredSession",
    "NanTensorHook",
    "OptimizerOptions",
    "RunMetadata",
    "RunOptions",
    "SecondOrStepTimer",
    "Session",
    "SessionCreator",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StopAtStepHook",
    "assert_global_step",
    "create_global_step",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
    "initial_values",
    "register_target",
]
