"""`tb.lookup`: lookup tables under the names of TensorFlow 1's `tf.lookup` and `tf.contrib.lookup`."""

from tensorbow.lookup.tables import (
    HashTable,
    KeyValueTensorInitializer,
    LookupTable,
    MutableHashTable,
    StaticHashTable,
    TableInitializer,
    TextFileIndex,
    TextFileInitializer,
    initialize_all_tables,
    tables_initializer,
)
from tensorbow.lookup.vocabularies import (
    FastHashSpec,
    IdTableWithHashBuckets,
    StaticVocabularyTable,
    StrongHashSpec,
    index_table_from_file,
    index_table_from_tensor,
    index_to_string_table_from_file,
    index_to_string_table_from_tensor,
)

__all__ = [
    "FastHashSpec",
    "HashTable",
    "IdTableWithHashBuckets",
    "KeyValueTensorInitializer",
    "LookupTable",
    "MutableHashTable",
    "StaticHashTable",
    "StaticVocabularyTable",
    "StrongHashSpec",
    "TableInitializer",
    "TextFileIndex",
    "TextFileInitializer",
    "index_table_from_file",
    "index_table_from_tensor",
    "index_to_string_table_from_file",
    "index_to_string_table_from_tensor",
    "initialize_all_tables",
    "tables_initializer",
]
