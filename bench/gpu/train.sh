#!/usr/bin/env bash
# Trains on every GPU of a host under a standalone Spark cluster of one worker, each precision beside torchrun.
# Usage: bench/gpu/train.sh TABLE OUT, with the environment of the packed runtime (env.sh) and two GPUs.
set -euo pipefail
table=$1 out=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
export NCCL_NVLS_ENABLE=0 PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
gpus=$(nvidia-smi --list-gpus | wc -l)
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader > "$out/gpu.txt"
spark=$(python3 -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')
cat > /tmp/gpus.sh <<'S'
#!/bin/bash
echo "{\"name\": \"gpu\", \"addresses\": [$(nvidia-smi --query-gpu=index --format=csv,noheader | sed 's/.*/"&"/' | paste -sd,)]}"
S
chmod +x /tmp/gpus.sh
export SPARK_HOME=$spark SPARK_LOCAL_IP=127.0.0.1
setsid "$spark/bin/spark-class" org.apache.spark.deploy.master.Master --host 127.0.0.1 --port 7077 --webui-port 0 \
  > /tmp/master.log 2>&1 &
SPARK_WORKER_OPTS="-Dspark.worker.resource.gpu.amount=$gpus -Dspark.worker.resource.gpu.discoveryScript=/tmp/gpus.sh" \
  setsid "$spark/bin/spark-class" org.apache.spark.deploy.worker.Worker --cores 8 --memory 32g --work-dir /tmp/work \
  --webui-port 0 spark://127.0.0.1:7077 > /tmp/worker.log 2>&1 &
sleep 8
trap 'pkill -f deploy.worker.Worker || true; pkill -f deploy.master.Master || true' EXIT
spark=(--spark spark.executor.cores=4 --spark spark.executor.memory=4g --spark spark.executor.resource.gpu.amount=1)
for precision in fp32 bf16 fp16; do
  for batch in 256 2048; do
    echo "== $precision, global batch $batch"
    python3 -m bench.train --table "$table" --master spark://127.0.0.1:7077 --rounds 1 --precision "$precision" \
      --batch "$batch" "${spark[@]}" | tee "$out/$precision-$batch.json" || echo failed
  done
done
python3 -m pytest -q -m gpu --noconftest tests/training/test_saver.py -p no:cacheprovider -o addopts= 2>&1 | tail -15 | tee "$out/tests.txt"
