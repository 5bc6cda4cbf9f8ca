"""Avro values that no column wants: what must be known of them to read over them."""

from __future__ import annotations

from kbit_spark.codecs.avro_schema import AvroType
from kbit_spark.codecs.avro_values import logical_plan
from kbit_spark.codecs.plan import Plan


class Skipped:
    """Plans of skipped values. Each record is planned once, in `records`: it may contain itself."""

    def __init__(self) -> None:
        self.records: dict[str, list[Plan]] = {}
        """The fields of each record by its full name."""

    def plan(self, writer: AvroType) -> Plan:
        """Return the plan to skip a value."""
        if (logical := logical_plan(writer)) is not None:
            return {"op": "checked", "reader": logical[1]}
        match writer.kind:
            case "union":
                return {"op": "union", "branches": [self.plan(branch) for branch in writer.branches]}
            case "array":
                return {"op": "array", "items": self.plan(writer.items)}
            case "map":
                return {"op": "map", "values": self.plan(writer.values)}
            case "fixed":
                return {"op": "fixed", "size": writer.size}
            case "enum":
                return {"op": "enum", "symbols": len(writer.symbols)}
            case "record":
                self._record(writer)
                return {"op": "record", "name": writer.name}
            case kind:
                return {"op": kind}

    def _record(self, writer: AvroType) -> None:
        if writer.name not in self.records:
            fields = self.records[writer.name] = []
            fields.extend(self.plan(field.type) for field in writer.fields)
