"""The text of a float in PostgreSQL: the fewest digits that give the same float again."""

from __future__ import annotations

_BODY = (
    "CASE WHEN p.e BETWEEN 0 AND {most} AND length(p.d) <= p.e + 1 THEN rpad(p.d, p.e + 1, '0') "
    "WHEN p.e BETWEEN 0 AND {most} THEN concat(left(p.d, p.e + 1), '.', substr(p.d, p.e + 2)) "
    "WHEN p.e BETWEEN -4 AND -1 THEN concat('0.', repeat('0', -p.e - 1), p.d) "
    "ELSE concat(left(p.d, 1), CASE WHEN length(p.d) > 1 THEN '.' ELSE '' END, substr(p.d, 2), "
    "CASE WHEN p.e < 0 THEN 'e-' ELSE 'e+' END, lpad(CAST(abs(p.e) AS STRING), greatest(2, length(abs(p.e))), '0')) END"
)
"""The number with the digits `p.d` and the exponent `p.e`; `most` is the largest exponent that is not written."""
_PARTS = (
    "named_struct('d', regexp_replace(regexp_replace(split_part(s, 'e', 1), '[-.]', ''), '0+$', ''), "
    "'e', CAST(split_part(s, 'e', 2) AS INT))"
)


def _float_text(spark_type: str, digits: range, most: int) -> str:
    """Return the Spark SQL of the text of a float that needs one of these numbers of digits."""
    *tries, last = [f"format_string('%.{number - 1}e', {{0}})" for number in digits]
    found = " ".join(f"WHEN CAST({one} AS {spark_type}) = {{0}} THEN {one}" for one in tries)
    body = f"get(transform(array({_PARTS}), p -> {_BODY.replace('{most}', str(most))}), 0)"
    number = f"get(transform(array(CASE {found} ELSE {last} END), s -> {body}), 0)"
    infinity = f"CAST('Infinity' AS {spark_type})"
    return (
        f"CASE WHEN {{0}} IS NULL THEN NULL WHEN isnan({{0}}) THEN 'NaN' WHEN {{0}} = {infinity} THEN 'Infinity' "
        f"WHEN {{0}} = -{infinity} THEN '-Infinity' "
        "WHEN {0} = 0 THEN regexp_replace(CAST({0} AS STRING), '[.]0', '') "
        f"ELSE concat(CASE WHEN {{0}} < 0 THEN '-' ELSE '' END, {number}) END"
    )


DOUBLE_TO_TEXT = _float_text("DOUBLE", range(15, 18), 14)
REAL_TO_TEXT = _float_text("FLOAT", range(6, 10), 5)
