"""`tb.flags`: options of a program on its command line, as TensorFlow 1's `tf.flags` has them.

    tb.flags.DEFINE_float("rate", 0.1, "Learning rate.")
    FLAGS = tb.flags.FLAGS

    def main(argv):
        print(FLAGS.rate)

    if __name__ == "__main__":
        tb.app.run()

The command line is read by `tb.app.run`, or when a flag is first asked for: `--rate=0.1`, `--rate 0.1`,
`--verbose`, `--noverbose`; all after `--` is left to the program.
"""

from tensorbow.program_frame.command_line_flags import (
    FLAGS,
    DEFINE_bool,
    DEFINE_boolean,
    DEFINE_enum,
    DEFINE_float,
    DEFINE_integer,
    DEFINE_list,
    DEFINE_multi_integer,
    DEFINE_multi_string,
    DEFINE_string,
    mark_flag_as_required,
)

__all__ = [
    "FLAGS",
    "DEFINE_bool",
    "DEFINE_boolean",
    "DEFINE_enum",
    "DEFINE_float",
    "DEFINE_integer",
    "DEFINE_list",
    "DEFINE_multi_integer",
    "DEFINE_multi_string",
    "DEFINE_string",
    "mark_flag_as_required",
]
