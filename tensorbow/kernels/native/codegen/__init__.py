"""Generation and compilation of LLVM IR: emitter, loops, vectors, call tables, object code on disk.

Imports no other room of the native backend.
"""
