"""Message classes of protocol buffers from short descriptions, without a compiler of .proto files.

A message is described by its fields: `repeated int64 value 1, string name 2, map:Feature feature 3`; a name
with a point is that of a message inside another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from tensorbow.errors import FailedPreconditionError

SCALARS = ("double", "float", "int64", "uint64", "int32", "uint32", "bool", "string", "bytes")


def message_classes(
    name: str,
    messages: Mapping[str, str],
    enums: Mapping[str, Mapping[str, int]],
    oneofs: Mapping[str, str],
) -> Callable[[str], Any]:
    """A function that gives the class of a message of the package `tensorflow`, by name.

    messages: the fields of each. enums: names and numbers of each. oneofs: the name of the oneof that all
    fields of a message are in. name: of the file, in a pool of its own.

    Raises FailedPreconditionError where protobuf is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise FailedPreconditionError(
            "protocol buffers need protobuf; pip install 'tensorbow[protobuf]'"
        ) from None
    file = descriptor_pb2.FileDescriptorProto(name=f"tensorbow/{name}.proto", package="tensorflow")
    file.syntax = "proto3"
    for enum, members in enums.items():
        types = file.enum_type.add(name=enum)
        for member, number in members.items():
            types.value.add(name=member, number=number)
    kinds = {k: getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{k.upper()}") for k in SCALARS}

    def add(message: Any, fields: str, prefix: str) -> None:
        for part in fields.split(", "):
            words = part.split()
            repeated, (kind, field_name, number) = words[0] == "repeated", words[-3:]
            field = message.field.add(name=field_name, number=int(number), label=3 if repeated else 1)
            if kind.startswith("map:"):
                title = "".join(word.title() for word in field_name.split("_"))
                entry = message.nested_type.add(name=f"{title}Entry")
                entry.options.map_entry = True
                add(entry, f"string key 1, {kind[4:]} value 2", f"{prefix}.{entry.name}")
                field.label, field.type, field.type_name = 3, 11, f"{prefix}.{entry.name}"
            elif kind in kinds:
                field.type = kinds[kind]
            else:
                field.type, field.type_name = 14 if kind in enums else 11, f".tensorflow.{kind}"

    for full, fields in messages.items():
        outer, _, inner = full.partition(".")
        if inner:
            parent = next(m for m in file.message_type if m.name == outer)
            message = parent.nested_type.add(name=inner)
        else:
            message = file.message_type.add(name=outer)
        if fields:
            add(message, fields, f".tensorflow.{full}")
        if full in oneofs:
            message.oneof_decl.add(name=oneofs[full])
            for field in message.field:
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())

    @cache
    def message_class(name: str) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tensorflow.{name}"))

    return message_class
