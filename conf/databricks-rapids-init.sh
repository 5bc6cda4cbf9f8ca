#!/usr/bin/env bash
# Databricks init script, run on every node before Spark starts: puts the project's jars onto Spark's class path.
# It downloads nothing. KBIT_INIT_JARS is the folder in a Unity Catalog volume that holds kbit-jvm-*.jar and, where
# KBIT_INIT_RAPIDS=1, what is in jars/target/gpu: RAPIDS (for the runtime's CUDA), kbit-gpu and JNA.
# KBIT_INIT_TARGET is for tests.
set -euo pipefail
target=${KBIT_INIT_TARGET:-/databricks/jars}

fail() {
  echo "error: $1" >&2
  echo "  $2" >&2
  exit 3
}

copy_one() {  # copies the only file that matches; two versions on one class path are worse than none
  local found=()
  mapfile -t found < <(find "$KBIT_INIT_JARS" -maxdepth 1 -name "$1" | sort)
  [ "${#found[@]}" -eq 1 ] || fail "${#found[@]} files match $KBIT_INIT_JARS/$1, not 1" \
    "put exactly one there: databricks fs cp JAR dbfs:$KBIT_INIT_JARS/"
  cp "${found[0]}" "$target/"
}

[ -n "${KBIT_INIT_JARS:-}" ] || fail "KBIT_INIT_JARS is not set" "set it in spark_env_vars of the cluster"
[ -d "$KBIT_INIT_JARS" ] || fail "no folder $KBIT_INIT_JARS" "create the volume, or grant READ VOLUME on it"
copy_one "kbit-jvm-*.jar"
if [ "${KBIT_INIT_RAPIDS:-0}" = 1 ]; then
  copy_one "rapids-4-spark_2.13-*.jar"
  copy_one "kbit-gpu-*.jar"
  copy_one "jna-*.jar"
fi
