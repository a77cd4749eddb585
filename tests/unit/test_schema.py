"""Delta schemas from DDL, Arrow and Spark, conversion to Arrow, and validation."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltasql.errors import UnsupportedFeature, ValidationError
from deltasql.protocol.schema import arrow_schema, schema_string
from deltasql.protocol.schema_rules import schema_metadata_keys, schema_types, validate_schema
from tests.effort import rounds


def fields(schema: Any) -> list[dict[str, Any]]:
    return json.loads(schema_string(schema))["fields"]


def type_of(ddl: str) -> Any:
    (field,) = fields(f"c {ddl}")
    return field["type"]


# --- DDL


def test_ddl_gives_the_schema_string_that_spark_writes() -> None:
    assert schema_string("id BIGINT NOT NULL, day DATE COMMENT 'x', s STRUCT<a: INT, b: ARRAY<STRING>>") == (
        '{"type":"struct","fields":['
        '{"name":"id","type":"long","nullable":false,"metadata":{}},'
        '{"name":"day","type":"date","nullable":true,"metadata":{"comment":"x"}},'
        '{"name":"s","type":{"type":"struct","fields":['
        '{"name":"a","type":"integer","nullable":true,"metadata":{}},'
        '{"name":"b","type":{"type":"array","elementType":"string","containsNull":true},'
        '"nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}}]}'
    )


@pytest.mark.parametrize(
    ("ddl", "delta"),
    [
        ("BYTE", "byte"),
        ("TINYINT", "byte"),
        ("SHORT", "short"),
        ("SMALLINT", "short"),
        ("INT", "integer"),
        ("INTEGER", "integer"),
        ("LONG", "long"),
        ("BIGINT", "long"),
        ("FLOAT", "float"),
        ("REAL", "float"),
        ("DOUBLE", "double"),
        ("STRING", "string"),
        ("TEXT", "string"),
        ("BINARY", "binary"),
        ("BYTEA", "binary"),
        ("BOOLEAN", "boolean"),
        ("DATE", "date"),
        ("TIMESTAMP", "timestamp"),
        ("TIMESTAMP_LTZ", "timestamp"),
        ("TIMESTAMP_NTZ", "timestamp_ntz"),
        ("VOID", "void"),
        ("DECIMAL", "decimal(10,0)"),
        ("DEC(5)", "decimal(5,0)"),
        ("NUMERIC(38, 18)", "decimal(38,18)"),
        ("decimal ( 10 , 2 )", "decimal(10,2)"),
    ],
)
def test_ddl_types(ddl: str, delta: str) -> None:
    assert type_of(ddl) == delta
    assert type_of(ddl.lower()) == delta


def test_ddl_nested_types() -> None:
    assert type_of("MAP<STRING, ARRAY<ARRAY<DOUBLE>>>") == {
        "type": "map",
        "keyType": "string",
        "valueType": {
            "type": "array",
            "elementType": {"type": "array", "elementType": "double", "containsNull": True},
            "containsNull": True,
        },
        "valueContainsNull": True,
    }
    (inner,) = type_of("STRUCT<`a b`: INT NOT NULL COMMENT 'deep'>")["fields"]
    assert inner == {"name": "a b", "type": "integer", "nullable": False, "metadata": {"comment": "deep"}}


def test_ddl_keeps_the_case_of_names_and_accepts_any_word() -> None:
    names = [f["name"] for f in fields("Id INT, `Order Id`: INT, show INT, date DATE, check INT, comment INT, é INT")]
    assert names == ["Id", "Order Id", "show", "date", "check", "comment", "é"]


def test_ddl_ignores_comments_and_line_breaks() -> None:
    assert schema_string("a INT, -- the first\n b STRING /* the second */ NOT NULL -- last") == schema_string(
        "a INT, b STRING NOT NULL"
    )


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ("'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        ("'a' 'b'", "ab"),
        ('"x"', "x"),
        ("'a, b) -- c'", "a, b) -- c"),
    ],
)
def test_ddl_comment_texts(literal: str, text: str) -> None:
    assert fields(f"a INT COMMENT {literal}")[0]["metadata"] == {"comment": text}


def test_varchar_is_a_string_with_its_length_in_the_metadata() -> None:
    plain, nested = fields("a VARCHAR(10) COMMENT 'x', s STRUCT<b: CHAR(3), n: BIGINT>")
    assert plain["type"] == "string"
    assert plain["metadata"] == {"comment": "x", "__CHAR_VARCHAR_TYPE_STRING": "varchar(10)"}
    assert nested["metadata"] == {"__CHAR_VARCHAR_TYPE_STRING": "struct<b:char(3),n:bigint>"}
    assert [f["type"] for f in nested["type"]["fields"]] == ["string", "long"]


def test_expressions_are_kept_as_they_were_written() -> None:
    day, size, known, name = fields(
        "day DATE GENERATED ALWAYS AS (CAST(`Ts` AS  DATE)) COMMENT 'x', "
        "size INT DEFAULT coalesce(1, (2)) NOT NULL, "
        "known BOOLEAN DEFAULT x IS NOT NULL, "
        "name STRING DEFAULT 'a, b' COMMENT 'y'"
    )
    assert day["metadata"] == {"delta.generationExpression": "CAST(`Ts` AS  DATE)", "comment": "x"}
    assert (size["metadata"], size["nullable"]) == ({"CURRENT_DEFAULT": "coalesce(1, (2))"}, False)
    assert (known["metadata"], known["nullable"]) == ({"CURRENT_DEFAULT": "x IS NOT NULL"}, True)
    assert name["metadata"] == {"CURRENT_DEFAULT": "'a, b'", "comment": "y"}


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("a FOO", "a type for column 'a' at line 1, column 3, got 'FOO'"),
        ("a INT,\n  b BIGNT", r'did you mean "BIGINT"\?\) at line 2, column 5'),
        ("a INT b INT", "line 1, column 7, got 'b'"),
        ("a INT `b` INT", "line 1, column 7, got 'b'"),
        ("a", "a type for column 'a' at line 1, column 2, got the end"),
        ("a INT,", "a column name .* got the end"),
        ("a INT) x", r"column 6, got '\)'"),
        ("a INT; DROP TABLE t", "got ';'"),
        ("'a' INT", "a column name"),
        ("a INT NOT", "got 'NOT'"),
        ("a STRING COLLATE x", "got 'COLLATE'"),
        ("a INT 'x", "a quote or a comment is not closed"),
        ("a INT /* x", "a quote or a comment is not closed"),
        ("a INT COMMENT x", "a string in quotes"),
        ("a ARRAY", "expected '<'"),
        ("a STRUCT<>", "expected '<'"),
        ("a MAP<STRING>", "expected ','"),
        ("a ARRAY<INT", "expected '>'.* got the end"),
        ("a STRUCT<b: INT DEFAULT 3>", "NOT NULL, COMMENT, a comma or '>'"),
        ("a DECIMAL(x)", "a whole number"),
        ("a DECIMAL(1,2,3)", r"DECIMAL\(precision, scale\)"),
        ("a DECIMAL(39,2)", r"decimal\(39,2\) is out of range"),
        ("a DECIMAL(2,3)", r"decimal\(2,3\) is out of range"),
        ("a VARCHAR", "without a limit use STRING"),
        ("a INT DEFAULT", "expected a SQL expression at line 1, column 14"),
        ("a INT DEFAULT 1 2", "got '1 2'"),
        ("a INT GENERATED ALWAYS AS ()", "expected a SQL expression"),
        ("a INT GENERATED ALWAYS AS (1", r"expected '\)'"),
        ("a INT GENERATED STORED", "GENERATED ALWAYS AS"),
    ],
)
def test_invalid_ddl_is_rejected_with_its_position(ddl: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        schema_string(ddl, table="shop.orders")


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("id BIGINT GENERATED ALWAYS AS IDENTITY", "IDENTITY column 'id'.*UUID"),
        ("id BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH 1)", "IDENTITY column 'id'"),
        ("id INT PRIMARY KEY", "PRIMARY KEY at line 1, column 8.*MERGE"),
        ("id INT UNIQUE", "UNIQUE.*MERGE"),
        ("id INT REFERENCES t(a)", "REFERENCES"),
        ("id INT CHECK (id > 0)", "constraints="),
        ("id INT CONSTRAINT c CHECK (id > 0)", "constraints="),
        ("id INT, PRIMARY KEY (id)", "PRIMARY KEY at line 1, column 9"),
        ("id INT, FOREIGN KEY (id) REFERENCES t(a)", "FOREIGN KEY"),
        ("id INT, UNIQUE (id)", "UNIQUE"),
        ("id INT, CHECK (id > 0)", "constraints="),
        ("id INT, CONSTRAINT c CHECK (id > 0)", "constraints="),
        ("id VARIANT", "'id' at line 1, column 4 has type VARIANT"),
        ("s STRUCT<i: INTERVAL DAY TO SECOND>", r"'s\.i'.*INTERVAL"),
    ],
)
def test_unsupported_ddl_names_an_alternative(ddl: str, message: str) -> None:
    with pytest.raises(UnsupportedFeature, match=f"^table shop.orders: .*{message}") as caught:
        schema_string(ddl, table="shop.orders")
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


# --- Spark and schemaStrings


class StructType:
    """A stand-in for pyspark's class with the only method that is used, `jsonValue`."""

    def __init__(self, *fields: dict[str, Any]) -> None:
        self.fields = list(fields)

    def jsonValue(self) -> dict[str, Any]:
        return {"type": "struct", "fields": self.fields}


def test_a_struct_type_keeps_its_metadata() -> None:
    metadata = {"comment": "x", "my.own": {"a": [1, 2.5, None]}}
    field = {"name": "a", "type": "timestamp_ntz", "nullable": False, "metadata": metadata}
    assert fields(StructType(field)) == [field]


def test_varchar_of_a_struct_type_becomes_a_string() -> None:
    (field,) = fields(StructType({"name": "a", "type": "varchar(3)", "nullable": True, "metadata": {}}))
    assert (field["type"], field["metadata"]) == ("string", {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"})


def test_an_unknown_spark_type_is_rejected() -> None:
    with pytest.raises(UnsupportedFeature, match="'a' has type interval day to second"):
        schema_string(StructType({"name": "a", "type": "interval day to second", "nullable": True}))


def test_a_schema_string_is_taken_as_it_is() -> None:
    text = schema_string("a INT NOT NULL, m MAP<STRING, DOUBLE>")
    assert schema_string(text) == text


def test_other_values_are_not_schemas() -> None:
    with pytest.raises(ValidationError, match="got dict"):
        schema_string({"a": "int"})  # type: ignore[arg-type]


# --- Arrow


def test_delta_types_in_arrow() -> None:
    schema = arrow_schema(
        schema_string(
            "a BYTE, b SHORT, c INT, d BIGINT NOT NULL, e FLOAT, f DOUBLE, g DECIMAL(10,2), h STRING, "
            "i BINARY, j BOOLEAN, k DATE, l TIMESTAMP, m TIMESTAMP_NTZ, n VOID, o ARRAY<INT>, "
            "p MAP<STRING, INT>, q STRUCT<r: INT NOT NULL>"
        )
    )
    assert schema.names == list("abcdefghijklmnopq")
    assert schema.types == [
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.decimal128(10, 2),
        pa.string(),
        pa.binary(),
        pa.bool_(),
        pa.date32(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
        pa.null(),
        pa.list_(pa.field("element", pa.int32())),
        pa.map_(pa.string(), pa.field("value", pa.int32())),
        pa.struct([pa.field("r", pa.int32(), nullable=False)]),
    ]
    assert [field.name for field in schema if not field.nullable] == ["d"]


@pytest.mark.parametrize(
    ("arrow", "delta"),
    [
        (pa.uint8(), "short"),
        (pa.uint16(), "integer"),
        (pa.uint32(), "long"),
        (pa.float16(), "float"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary(16), "binary"),
        (pa.date64(), "date"),
        (pa.null(), "void"),
        (pa.timestamp("ns", "Europe/Paris"), "timestamp"),
        (pa.timestamp("s", "+01:00"), "timestamp"),
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.decimal256(38, 10), "decimal(38,10)"),
        (pa.decimal128(5, 5), "decimal(5,5)"),
        (pa.dictionary(pa.int8(), pa.large_string()), "string"),
        (pa.run_end_encoded(pa.int32(), pa.int64()), "long"),
        (pa.large_list(pa.int8()), {"type": "array", "elementType": "byte", "containsNull": True}),
        (
            pa.list_(pa.field("item", pa.int8(), nullable=False), 3),
            {"type": "array", "elementType": "byte", "containsNull": False},
        ),
    ],
)
def test_arrow_types_in_delta(arrow: pa.DataType, delta: Any) -> None:
    assert fields(pa.schema([("c", arrow)]))[0]["type"] == delta


@pytest.mark.parametrize(
    ("arrow", "message"),
    [
        (pa.uint64(), r"uint64.*decimal128\(20, 0\)"),
        (pa.time64("us"), r"time64\[us\].*int64 or string"),
        (pa.time32("s"), "time32"),
        (pa.duration("s"), "duration"),
        (pa.month_day_nano_interval(), "month_day_nano_interval"),
        (pa.sparse_union([pa.field("x", pa.int8())]), "union.*struct"),
        (pa.decimal256(40, 2), r"decimal256\(40, 2\).*precision"),
        (pa.decimal128(5, -2), r"decimal128\(5, -2\)"),
        (pa.uuid(), "uuid.*storage type"),
        (pa.list_(pa.struct([("t", pa.time64("us"))])), r"'c\.element\.t' is time64"),
    ],
)
def test_unsupported_arrow_types_are_rejected_by_name(arrow: pa.DataType, message: str) -> None:
    with pytest.raises(UnsupportedFeature, match=message):
        schema_string(pa.schema([("c", arrow)]))


def test_metadata_of_delta_survives_arrow() -> None:
    metadata = {"comment": "5", "delta.columnMapping.id": 1, "x": {"y": [True, None]}, "z": "true"}
    text = schema_string(StructType({"name": "a", "type": "long", "nullable": True, "metadata": metadata}))
    assert fields(arrow_schema(text))[0]["metadata"] == metadata


def test_plain_arrow_metadata_is_taken_as_text_and_pyarrows_own_is_left_out() -> None:
    metadata = {"comment": "42", "note": "hello", "PARQUET:field_id": "7"}
    assert fields(pa.schema([pa.field("a", pa.int64(), metadata=metadata)]))[0]["metadata"] == {
        "comment": "42",
        "note": "hello",
    }


def test_void_columns_are_nullable_in_arrow_whatever_delta_says() -> None:
    assert arrow_schema(schema_string("a VOID NOT NULL")).field("a").nullable
    with pytest.raises(ValidationError, match="column 'm': the keys of a map must not be void"):
        schema_string("m MAP<VOID, INT>")


def test_an_unknown_delta_type_is_rejected_with_its_column() -> None:
    text = '{"type":"struct","fields":[{"name":"v","type":"variant","nullable":true,"metadata":{}}]}'
    with pytest.raises(UnsupportedFeature, match="column 'v' has type variant") as caught:
        arrow_schema(text)
    assert caught.value.features == ("variant",)


_PRIMITIVES = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.null(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
]
_decimals = st.integers(1, 38).flatmap(
    lambda precision: st.integers(0, precision).map(lambda scale: pa.decimal128(precision, scale))
)
_metadata = st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=2)


def _struct_fields(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    field = st.builds(
        lambda name, type_, nullable, metadata: pa.field(
            name,
            type_,
            nullable or type_ == pa.null(),
            {key: json.dumps(value, ensure_ascii=False) for key, value in metadata.items()} or None,
        ),
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
        types,
        st.booleans(),
        _metadata,
    )
    return st.lists(field, min_size=1, max_size=4, unique_by=lambda f: f.name)


_types = st.recursive(
    st.sampled_from(_PRIMITIVES) | _decimals,
    lambda inner: st.one_of(
        st.builds(lambda t, n: pa.list_(pa.field("element", t, n or t == pa.null())), inner, st.booleans()),
        st.builds(lambda v, n: pa.map_(pa.string(), pa.field("value", v, n or v == pa.null())), inner, st.booleans()),
        _struct_fields(inner).map(pa.struct),
    ),
    max_leaves=6,
)


@settings(max_examples=rounds(150), deadline=None)
@given(_struct_fields(_types))
def test_arrow_to_delta_to_arrow_is_the_identity(columns: list[pa.Field]) -> None:
    schema = pa.schema(columns)
    text = schema_string(schema)
    assert arrow_schema(text).equals(schema, check_metadata=True)
    assert schema_string(arrow_schema(text)) == text


# --- types and metadata keys of a schema


def test_schema_types_are_found_at_any_depth() -> None:
    text = schema_string("a INT, m MAP<STRING, ARRAY<STRUCT<t: TIMESTAMP_NTZ>>>, d DECIMAL(10,2)")
    assert schema_types(text) == {"integer", "string", "timestamp_ntz", "decimal"}


def test_metadata_keys_are_found_at_any_depth() -> None:
    text = schema_string("a INT DEFAULT 3, s ARRAY<STRUCT<t: INT COMMENT 'x'>>")
    assert schema_metadata_keys(text) == {"CURRENT_DEFAULT", "comment"}


# --- validation


def check(ddl: str, *partition_columns: str) -> None:
    validate_schema(schema_string(ddl), partition_columns, "t")


def test_a_legal_schema() -> None:
    check("id BIGINT, Day DATE, `a.b` INT, raw BINARY, s STRUCT<id: INT>", "Day", "raw")


@pytest.mark.parametrize(
    ("ddl", "partition_columns", "message"),
    [
        ("", [], "at least one column"),
        ("a INT, A STRING", [], "'a' and 'A' differ at most in case"),
        ("a INT, a INT", [], "'a' and 'a' differ"),
        ("s ARRAY<STRUCT<x: INT, X: INT>>", [], r"'s\.element\.x' and 's\.element\.X'"),
        ("`order id` INT", [], "name it 'order_id'"),
        ("s STRUCT<`(a)`: INT>", [], r"'s\.\(a\)'.*name it 'a'"),
        ("`=` INT", [], "name it 'column'"),
        ("a INT, day DATE", ["dya"], 'partition column "dya" does not exist .did you mean "day"?'),
        ("a INT, day DATE", ["DAY"], 'did you mean "day"?'),
        ("a INT, b INT", ["zzzz"], "known: a, b"),
        ("a INT, b INT", ["b", "b"], "'b' is given twice"),
        ("a INT, s STRUCT<x: INT>", ["s"], "'s' has type struct"),
        ("a INT, s ARRAY<INT>", ["s"], "'s' has type array"),
        ("a INT, b INT", ["a", "b"], "every column is a partition column"),
    ],
)
def test_illegal_schemas(ddl: str, partition_columns: list[str], message: str) -> None:
    with pytest.raises(ValidationError, match=f"^table t: .*{message}") as caught:
        check(ddl, *partition_columns)
    assert caught.value.table == "t"


def test_an_empty_column_name_is_rejected() -> None:
    with pytest.raises(ValidationError, match="has an empty name"):
        validate_schema(schema_string(pa.schema([("", pa.int32())])), [], "t")


def test_column_mapping_allows_all_characters() -> None:
    metadata = {"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 1}
    field = {"name": "order id", "type": "long", "nullable": True, "metadata": metadata}
    validate_schema(schema_string(StructType(field)), [], "t")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nope", "not JSON"),
        ('{"type":"struct"', "not JSON"),
        ("[]", 'with "type":"struct"'),
        ('{"type":"array"}', 'with "type":"struct"'),
        ('{"type":"struct"}', "malformed schemaString: the schema is"),
        ('{"type":"struct","fields":[1]}', "a field is 1"),
        ('{"type":"struct","fields":[{"name":"a"}]}', "a field is"),
        ('{"type":"struct","fields":[{"name":"a","type":{"type":"list"}}]}', "the type of column 'a' is"),
        ('{"type":"struct","fields":[{"name":"a","type":"long","nullable":"no"}]}', "a field is"),
        ('{"type":"struct","fields":[{"name":"a","type":"decimal(50,2)"}]}', "out of range"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_malformed_schema_strings_are_rejected(text: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        validate_schema(text, [], "t")
