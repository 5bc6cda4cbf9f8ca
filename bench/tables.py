"""What every samples table of the benches has."""

from __future__ import annotations

import json

import pyarrow as pa

from kbit_spark.schemas.fields import Tensor


def samples_schema(column: str, tensor: Tensor) -> pa.Schema:
    """Return the columns that training reads, as the ingest job makes them: a tensor, its label, the split."""
    # Arrow's metadata is text where Spark's may be a list
    metadata = {key: json.dumps(v) if isinstance(v, list) else v for key, v in tensor.to_metadata().items()}
    return pa.schema(
        [
            pa.field(column, pa.binary(), metadata=metadata),
            pa.field("label", pa.int32()),
            pa.field("_split", pa.string()),
        ]
    )
