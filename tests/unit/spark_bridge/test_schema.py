"""The schema of a query: what a `valueSchema` may say of documents that cannot be read."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from ringlog.errors import InvalidRequest
from spark_bridge.options import source_options
from spark_bridge.schema import check_schema


def options(value_format):
    given = {"subscribe": "a", "columns": "value", "valueFormat": value_format, "valueSchema": "n INT"}
    return source_options(given)


def with_corrupt(kind):
    return StructType().add("value", StructType().add("n", IntegerType()).add("_corrupt_record", kind))


def test_the_text_of_bad_documents_is_a_string():
    check_schema(options("json"), with_corrupt(StringType()))
    with pytest.raises(InvalidRequest, match="'_corrupt_record' is a STRING"):
        check_schema(options("json"), with_corrupt(IntegerType()))


def test_arrow_values_have_no_text():
    with pytest.raises(InvalidRequest, match="only for valueFormat=json"):
        check_schema(options("arrow"), with_corrupt(StringType()))


def test_a_schema_with_other_columns_is_refused():
    with pytest.raises(InvalidRequest, match="choose with option 'columns'"):
        check_schema(options("json"), StructType().add("n", IntegerType()))
