#!/usr/bin/env bash
# The whole chain on a GPU host: digits through Kafka, decoded on the GPU into Delta, a model trained on the GPU.
# Usage: bench/gpu/chain.sh > LOG, with the environment of the packed runtime (env.sh).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
export NCCL_NVLS_ENABLE=0 PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} SPARK_LOCAL_IP=127.0.0.1
kbit() { python3 -m kbit_spark.cli.main "$@"; }
here=$(mktemp -d)
gpus=$(nvidia-smi --list-gpus | wc -l)
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
setsid python3 -m kbit_spark.cli.main broker start --folder "$here/broker" > "$here/broker.log" 2>&1
servers=$(grep -oE '127.0.0.1:[0-9]+' "$here/broker.log" | head -1)
kbit produce --bootstrap-servers "$servers" --topic digits-json --format json --rows 30000
kbit produce --bootstrap-servers "$servers" --topic digits-avro --format avro --rows 30000
echo "== ingest"
KBIT_GPU=1 ./spark-submit.sh --master 'local[8]' --driver-memory 16g jobs/stream_ingest.py --config conf/demo-ingest.yaml \
  kafka.bootstrap_servers="$servers" kafka.max_offsets_per_trigger=20000 decode.placement=gpu decode.shadow_fraction=0.1 \
  tables.samples="$here/samples" tables.rejected="$here/rejected" checkpoint_dir="$here/checkpoint" \
  telemetry.run_dir="$here/runs" telemetry.metrics_table=null
grep -h '"ingest_batch"\|"decode_' "$here"/runs/*/events.jsonl | cut -c1-400
kbit ledger verify "$here/samples" --rejected "$here/rejected"
echo "== training"
spark=$(python3 -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')
setsid "$spark/bin/spark-class" org.apache.spark.deploy.master.Master --host 127.0.0.1 --port 7077 --webui-port 0 \
  > "$here/master.log" 2>&1 &
SPARK_WORKER_OPTS="-Dspark.worker.resource.gpu.amount=$gpus -Dspark.worker.resource.gpu.discoveryScript=$root/conf/gpu/find-gpus.sh" \
  setsid "$spark/bin/spark-class" org.apache.spark.deploy.worker.Worker --cores 8 --memory 32g --work-dir "$here/work" \
  --webui-port 0 spark://127.0.0.1:7077 > "$here/worker.log" 2>&1 &
trap 'pkill -f deploy.worker.Worker || true; pkill -f deploy.master.Master || true' EXIT
sleep 6
for resident in false true; do
  ./spark-submit.sh --master spark://127.0.0.1:7077 --conf spark.executor.cores=4 --conf spark.executor.memory=4g \
    --conf spark.executor.resource.gpu.amount=1 jobs/train_barrier.py --config conf/demo-train.yaml \
    data.table="$here/samples" data.resident="$resident" world_size="$gpus" epochs=4 checkpoint.dir="$here/checkpoints-$resident" \
    telemetry.run_dir="$here/runs-$resident" telemetry.metrics_table=null
done
kbit broker stop --folder "$here/broker"
