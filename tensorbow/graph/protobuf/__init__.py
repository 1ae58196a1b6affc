"""GraphDef as protocol buffers, wire-compatible with TensorFlow's (white paper, section 2).

Ops that mean the same as TensorFlow's have its name and attributes (`T`, `dtype`, `shape`, `value` and so
on); the rest is written as `TensorBow>Name`. Attributes that the messages cannot hold exactly are in the
attribute `_tensorbow` as JSON. Static shapes and dtypes of outputs, colocation and the user's line are in
`_output_shapes`, `_output_types`, `_class` and `_source`, the branch or loop of a node in `_context`;
collections, and the branches and loops, in fields of their own, which other readers skip.
"""
