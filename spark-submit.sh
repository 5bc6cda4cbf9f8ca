#!/usr/bin/env bash
# Submits a job with the project's Python, jars and defaults:  ./spark-submit.sh [SPARK OPTIONS] jobs/JOB.py [JOB OPTIONS]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYSPARK_PYTHON:-$root/.venv/bin/python}
[ -x "$python" ] || python=$(command -v python3)
if ! spark=$("$python" -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)' 2>/dev/null); then
  echo "error: no pyspark in $python" >&2
  echo "  run \`make setup\`, or set PYSPARK_PYTHON to a Python that has it" >&2
  exit 3
fi
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
if [ -z "${SPARK_HOME:-}${SPARK_CONF_DIR:-}" ] && ! command -v "$java" >/dev/null; then # else spark-env.sh may name one
  echo "error: no java $([ -n "${JAVA_HOME:-}" ] && echo "in $JAVA_HOME/bin, which JAVA_HOME names" || echo "on the PATH")" >&2
  echo "  install Java 17 or newer, and let JAVA_HOME or the PATH name it" >&2
  exit 3
fi
if [ -z "${SPARK_HOME:-}" ]; then
  # local-cluster puts its work folder into SPARK_HOME: give it a home of links, not pyspark's own folder
  SPARK_HOME=$root/.kbit/spark-home
  if [ "$(readlink "$SPARK_HOME/jars" 2>/dev/null)" != "$spark/jars" ]; then
    mkdir -p "$SPARK_HOME"
    ln -sfn "$spark/jars" "$SPARK_HOME/jars"
    ln -sfn "$spark/bin" "$SPARK_HOME/bin"
    ln -sfn "$spark/python" "$SPARK_HOME/python"
  fi
  export SPARK_HOME
fi
export PYSPARK_PYTHON=$python PYSPARK_DRIVER_PYTHON=$python PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
jars=${KBIT_JARS:-$root/jars/target/spark}
gpu=() first=$jars # the class path begins with the jars of this folder, if with any
if [ "${KBIT_GPU:-0}" = 1 ]; then # a plugin must be on the class path before the process starts: docs/gpu.md
  gpu_jars=${KBIT_GPU_JARS:-$root/jars/target/gpu}
  first=$gpu_jars
  if ! ls "$gpu_jars"/rapids-4-spark*.jar >/dev/null 2>&1; then
    echo "error: no jar of RAPIDS in $gpu_jars" >&2
    echo "  run \`scripts/setup.sh gpu\`, or set KBIT_GPU_JARS to the folder that holds it" >&2
    exit 3
  fi
  if mkdir -p .kbit 2>/dev/null && [ -w .kbit ]; then # it tells of every full pool, else to the terminal
    export RMM_DEBUG_LOG_FILE=${RMM_DEBUG_LOG_FILE-$PWD/.kbit/rmm.log}
  fi
  path=$(printf '%s:' "$gpu_jars"/*.jar "$jars"/kbit-jvm*.jar | sed 's/:$//')
  gpu=(--conf "spark.plugins=com.nvidia.spark.SQLPlugin"
    --conf "spark.driver.extraClassPath=$path" --conf "spark.executor.extraClassPath=$path")
fi
classes=() # an archive that setup.sh makes: the JVM starts in less time
if [ -f "$first.jsa" ]; then
  archive=$(cd "$(dirname "$first")" && pwd)/$(basename "$first").jsa
  [[ $archive =~ [[:space:]] ]] || classes=("-XX:SharedArchiveFile=$archive" '-Xlog:cds*=off') # Spark splits at spaces
fi
exec "$SPARK_HOME/bin/spark-submit" --properties-file "$root/conf/spark-defaults.conf" \
  --conf "spark.jars=$(printf '%s,' "$jars"/*.jar | sed 's/,$//')" \
  --conf "spark.driver.extraJavaOptions=-XX:+UseParallelGC -Dlog4j2.configurationFile=$root/conf/log4j2.properties ${classes[*]-}" \
  ${gpu[@]+"${gpu[@]}"} "$@"
