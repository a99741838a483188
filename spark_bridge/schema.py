"""The columns of the source: those of Spark's Kafka source, under the same names and types."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ringlog.errors import InvalidRequest
from spark_bridge.bad_values import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_bridge.options import SourceOptions

_TYPES = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}


def spark_schema(options: SourceOptions) -> str:
    """The schema of a query as DDL, since only Spark's JVM can parse a user's `valueSchema`. With a value format,
    `value` is a struct of its columns."""
    types = dict(_TYPES)
    if options.value_schema is not None:
        types["value"] = f"STRUCT<{value_columns(options.value_schema)}>"
    return ", ".join(f"{name} {types[name]}" for name in options.columns)


def value_columns(text: str) -> str:
    """The columns that option `valueSchema` names: DDL as it is, or the JSON of a StructType."""
    if not text.lstrip().startswith("{"):
        return text
    from pyspark.sql.types import StructType

    try:
        simple: str = StructType.fromJson(json.loads(text)).simpleString()
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise InvalidRequest(
            f"option 'valueSchema' is not the JSON of a StructType; it may also be 'user STRING, at TIMESTAMP': {wrong}"
        ) from None
    return simple.removeprefix("struct<").removesuffix(">")


def check_schema(options: SourceOptions, schema: StructType) -> None:
    """InvalidRequest when the query was given a schema of its own that is not the source's."""
    if tuple(schema.fieldNames()) != options.columns:
        raise InvalidRequest(
            f"the source has the columns {', '.join(options.columns)}, and .schema(...) asks for "
            f"{', '.join(schema.fieldNames())}: choose with option 'columns', and give no schema"
        )
    for field in getattr(schema["value"].dataType, "fields", ()) if "value" in options.columns else ():
        if field.name == CORRUPT and (
            options.value_format != "json" or field.dataType.typeName() != "string"
        ):
            raise InvalidRequest(
                f"option 'valueSchema': '{CORRUPT}' is a STRING, and only for valueFormat=json"
            )
