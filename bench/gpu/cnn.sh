#!/usr/bin/env bash
# The CNN on one GPU, without Spark: torchrun on synthetic rows before and after jobs/train_torchrun.py on a Delta table.
# Usage: bench/gpu/cnn.sh OUT PRECISION...; 500 steps of 2,048 rows an epoch, whose seconds are printed. fp32 without TF32.
set -euo pipefail
out=$1; shift
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} NCCL_NVLS_ENABLE=0 NVIDIA_TF32_OVERRIDE=0
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1 | tee "$out/cnn.txt"
python3 -c "from pathlib import Path; from bench.gpu.images import write_images; write_images(Path('$here/t'), (28, 28), 1_024_000)"
one_rank() { python3 -m torch.distributed.run --standalone --nproc-per-node=1 "$@" 2> "$here/log.txt" || { tail -20 "$here/log.txt"; exit 1; }; }
torchrun() {
  found=$(one_rank bench/torchrun_baseline.py --synthetic 28 28 --steps 500 --global-batch 2048 --epochs 5 --precision "$1")
  echo "torchrun $1: $found" | tee -a "$out/cnn.txt"
}
ours() { # PRECISION NAME SETTING...
  precision=$1 name=$2; shift 2
  cat > "$here/train.yaml" <<Y
data: {table: $here/t, resident: true}
global_batch_size: 2048
epochs: 5
precision: $precision
checkpoint: {dir: $here/checkpoints}
telemetry: {run_dir: $here/runs, metrics_table: null}
Y
  one_rank jobs/train_torchrun.py --config "$here/train.yaml" "$@" > "$here/out.txt"
  python3 - "$here/runs" "ours $precision, $name" <<'P' | tee -a "$out/cnn.txt"
import sys
from pathlib import Path
from kbit_spark.telemetry.report import read_events
events = read_events(Path(sys.argv[1]).glob("*/events.jsonl"))
print(sys.argv[2], [round(event.numbers["train_s"], 4) for event in events if event.kind == "train_epoch"])
P
  rm -rf "$here/checkpoints" "$here/runs"
}
for precision in "$@"; do
  torchrun "$precision"
  ours "$precision" "one graph"
  ours "$precision" "kernel by kernel" cuda_graph=false
  ours "$precision" "one graph, no profiler" profile.phases=false
  torchrun "$precision"
done
