"""MongoDB Extended JSON v2, relaxed and canonical: JSON whose values may stand in wrappers ({"$numberInt": "7"}).

Plain values mean what they mean in JSON. What a column takes besides: an integer $numberInt and $numberLong; a float or
double these and $numberDouble; a decimal these and $numberDecimal, by their digits; a string $oid, $symbol, $uuid and a
UUID in $binary; binary $binary and $uuid; a timestamp $date; a date a $date at midnight UTC; a tensor lists of wrapped
numbers, and $binary.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbit_spark.codecs.json import json_plan
from kbit_spark.codecs.plan import Plan
from kbit_spark.schemas.fields import FieldSpec


def mongo_plan(fields: Sequence[FieldSpec]) -> Plan:
    """Return the plan for documents whose members are `fields`.

    Raises:
        UsageError: see `json_plan`.
    """
    return json_plan(fields) | {"format": "mongo"}
