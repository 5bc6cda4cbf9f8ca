from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbit_spark.codecs.avro import avro_plan
from kbit_spark.codecs.json import json_plan
from kbit_spark.codecs.mongo import mongo_plan
from kbit_spark.local.digits import digits
from kbit_spark.local.payloads import BREAKAGES, SCHEMA, Format, encode
from kbit_spark.local.produce import records
from kbit_spark.schemas.fields import FieldSpec, Tensor
from tests.fixtures.decode import Decode

FIELDS = (
    FieldSpec(name="image", tensor=Tensor(dtype="uint8", shape=(28, 28))),
    FieldSpec(name="label", type="int"),
)
DOCUMENT = (FIELDS[0].model_copy(update={"sources": ("image", "images")}), FIELDS[1])
PLANS = {
    "json": json_plan(FIELDS),
    "avro": avro_plan(json.dumps(SCHEMA), FIELDS, "digit.avsc"),
    "mongo": mongo_plan(DOCUMENT),
    "mongo-canonical": mongo_plan(DOCUMENT),
}


def test_the_schema_file_is_the_producers_schema() -> None:
    file = Path(__file__).parents[2] / "conf/schemas/digit.avsc"
    assert json.loads(file.read_text()) == SCHEMA


@pytest.mark.parametrize("form", PLANS)
def test_good_ones_decode_to_the_digit_and_broken_ones_never(form: Format, decode: Decode) -> None:
    rows = list(digits(200))
    good = decode(PLANS[form], [encode(digit, form) for digit in rows])
    assert [line["value"]["label"] for line in good] == [digit.label for digit in rows]
    assert [line["value"]["image"]["$hex"] for line in good] == [digit.image.tobytes().hex() for digit in rows]
    for name, breakage in BREAKAGES[form].items():
        lines = decode(PLANS[form], [breakage(encode(digit, form)) for digit in rows])
        assert all("error" in line for line in lines), name


def test_broken_ones_stand_at_seeded_places() -> None:
    def places(seed: int) -> list[int]:
        marked = records(digits(300), "json", 300, broken=12, seed=seed)
        return [index for index, (_, _, broken) in enumerate(marked) if broken]

    assert len(places(5)) == 12
    assert places(5) == places(5) != places(6)
