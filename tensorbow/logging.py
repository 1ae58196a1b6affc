"""`tb.logging`: TensorFlow's names for Python's logger "tensorbow", to which hooks and the library write.

By default warnings and errors are shown. `tb.logging.set_verbosity(tb.logging.INFO)` also shows what hooks
such as `tb.train.LoggingTensorHook` tell.
"""

from tensorbow.program_frame.messages import (
    DEBUG,
    ERROR,
    FATAL,
    INFO,
    WARN,
    debug,
    error,
    fatal,
    flush,
    get_verbosity,
    info,
    log,
    log_every_n,
    log_first_n,
    log_if,
    set_verbosity,
    warn,
    warning,
)

__all__ = [
    "DEBUG",
    "ERROR",
    "FATAL",
    "INFO",
    "WARN",
    "debug",
    "error",
    "fatal",
    "flush",
    "get_verbosity",
    "info",
    "log",
    "log_every_n",
    "log_first_n",
    "log_if",
    "set_verbosity",
    "warn",
    "warning",
]
