"""The paired test, and the file that says which model is in use."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbit_spark.errors import RunError
from kbit_spark.training import champion
from kbit_spark.training.champion import adopt, decide, read_promoted
from kbit_spark.training.manifest import Window
from kbit_spark.training.promotion import Paired

pairs = st.builds(
    lambda kept, gained, lost, neither: Paired(kept + gained + lost + neither, kept, gained, lost),
    *[st.integers(0, 300)] * 4,
)
BETTER, EQUAL = Paired(100, 80, 12, 2), Paired(100, 80, 5, 5)


@given(pairs)
def test_the_p_value_is_the_tail_of_a_fair_coin(pair: Paired) -> None:
    coins = pair.gained + pair.lost
    tail = sum(math.comb(coins, heads) for heads in range(pair.gained, coins + 1)) / 2**coins
    assert pair.p_value == pytest.approx(tail)


@given(pairs, st.floats(0.001, 0.5))
def test_better_means_more_gains_than_losses(pair: Paired, significance: float) -> None:
    assert not pair.is_better(significance) or pair.gained > pair.lost
    mirrored = Paired(pair.rows, pair.kept, pair.lost, pair.gained)
    assert not (pair.is_better(significance) and mirrored.is_better(significance))
    assert (pair.new_accuracy > pair.old_accuracy) == (pair.gained > pair.lost) or not pair.rows


def test_without_rows_nothing_is_better() -> None:
    nothing = Paired(0, 0, 0, 0)
    assert nothing.p_value == 1.0
    assert math.isnan(nothing.new_accuracy)


def window(number: int) -> Window:
    return Window(
        number=number, after=number - 1, last=number, as_of=number, first_epoch=number, new_rows=1,
        replayed_rows=0, repeated_rows=0, rows_so_far=number + 1,
    )  # fmt: skip


def checkpoint(root: Path, step: int) -> Path:
    folder = root / f"step-{step:09d}"
    folder.mkdir(parents=True)
    (folder / "state.pt").write_text(f"weights {step}")
    (folder / "manifest.json").write_text(json.dumps({"weights": step}))
    return folder


def in_use(root: Path) -> str:
    promoted = read_promoted(root)
    assert promoted is not None
    assert [path.name for path in (root / "champion").iterdir()] == [promoted.path(root).name]
    return (promoted.path(root) / "state.pt").read_text()


def test_the_first_model_is_promoted_then_only_better_ones(tmp_path: Path) -> None:
    assert read_promoted(tmp_path) is None
    first = decide(tmp_path, checkpoint(tmp_path, 1), window(0), Paired(100, 0, 30, 0), 0.05)
    assert (first.champion.accuracy, first.champion.p_value, in_use(tmp_path)) == (0.3, 1.0, "weights 1")
    second = decide(tmp_path, checkpoint(tmp_path, 2), window(1), EQUAL, 0.05)
    assert (second.decided_window, second.champion, in_use(tmp_path)) == (1, first.champion, "weights 1")
    third = decide(tmp_path, checkpoint(tmp_path, 3), window(2), BETTER, 0.05)
    assert (third.decided_window, third.champion.window, in_use(tmp_path)) == (2, 2, "weights 3")
    assert third.champion.p_value == pytest.approx(BETTER.p_value)
    assert decide(tmp_path, checkpoint(tmp_path, 4), window(3), BETTER, 0.001).champion.window == 2


def test_the_champion_outlives_its_checkpoint_and_a_second_decision_changes_nothing(tmp_path: Path) -> None:
    made = checkpoint(tmp_path, 1)
    decide(tmp_path, made, window(0), BETTER, 0.05)
    before = read_promoted(tmp_path)
    assert decide(tmp_path, made, window(0), Paired(100, 92, 0, 0), 0.05) == before  # compared with itself
    (made / "state.pt").unlink()
    assert in_use(tmp_path) == "weights 1"


def test_a_champion_of_a_run_before_is_not_taken_for_one_of_the_same_name(tmp_path: Path) -> None:
    decide(tmp_path, checkpoint(tmp_path, 1), window(0), BETTER, 0.05)
    shutil.rmtree(tmp_path / "step-000000001")  # someone begins anew, in the same folder
    for begin_anew in (True, False):
        if begin_anew:
            (tmp_path / "promoted.json").unlink()
        made = checkpoint(tmp_path, 1)
        (made / "state.pt").write_text(f"other weights {begin_anew}")
        (made / "manifest.json").write_text(json.dumps({"weights": begin_anew}))
        decide(tmp_path, made, window(0), BETTER, 0.05)
        assert in_use(tmp_path) == f"other weights {begin_anew}"
        shutil.rmtree(made)


def test_the_result_of_a_run_without_follow_mode_is_the_first_champion(tmp_path: Path) -> None:
    adopt(tmp_path, checkpoint(tmp_path, 7), version=5)
    adopt(tmp_path, checkpoint(tmp_path, 8), version=6)
    promoted = read_promoted(tmp_path)
    assert promoted is not None
    assert (promoted.decided_window, promoted.champion.version, in_use(tmp_path)) == (-1, 5, "weights 7")


def test_where_there_are_no_links_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(champion.os, "link", refuse)
    decide(tmp_path, checkpoint(tmp_path, 1), window(0), BETTER, 0.05)
    assert in_use(tmp_path) == "weights 1"


@pytest.mark.parametrize("text", ["", "{", json.dumps({"decided_window": 1})])
def test_a_damaged_pointer_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "promoted.json").write_text(text)
    with pytest.raises(RunError, match=r"cannot read .*promoted\.json.*or remove promoted\.json"):
        read_promoted(tmp_path)


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    made = checkpoint(tmp_path / "made", 1)
    (tmp_path / "champion").write_text("in the way")
    with pytest.raises(RunError, match=r"cannot write .*promoted\.json.*compared once more"):
        decide(tmp_path, made, window(0), BETTER, 0.05)
