"""Writing LLVM IR, and compiling it: emitter, loops, vectors, call tables, object code on disk.

Imports no other room of the native backend.
"""
