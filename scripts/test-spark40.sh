#!/usr/bin/env bash
# The chain on pyspark 4.0 with Delta 4.0, in an environment of its own: Databricks 17.3 ML is that line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh
stamp=.venv-spark40/.stamp
if ! [ -f "$stamp" ] || [ pyproject.toml -nt "$stamp" ]; then
  echo "setup: Spark 4.0 into .venv-spark40, everything else from .venv"
  [ -x .venv-spark40/bin/python ] || .venv/bin/python -m venv .venv-spark40
  .venv-spark40/bin/python -m pip install -q --disable-pip-version-check --no-deps pyspark==4.0.0 delta-spark==4.0.0
  # the same packages as in .venv, behind this environment's own
  .venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    >"$(.venv-spark40/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zz-shared.pth"
  touch "$stamp"
fi
(cd jars && mvn -B -q -Dstyle.color=never package -Pspark40)
export KBIT_JARS=$PWD/jars/target/spark40/spark PYSPARK_PYTHON=$PWD/.venv-spark40/bin/python
unset SPARK_HOME
"$PYSPARK_PYTHON" -c 'import pyspark, sys; sys.exit(None if pyspark.__version__ == "4.0.0" else f"not 4.0.0: {pyspark}")'
exec "$PYSPARK_PYTHON" -m pytest -p no:cacheprovider \
  tests/codecs tests/ingest/test_batches.py tests/training/test_barrier.py tests/telemetry/test_listener.py "$@"
