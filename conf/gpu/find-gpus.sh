#!/usr/bin/env bash
# Tells Spark which GPUs this machine has, as its resource discovery asks it: {"name": "gpu", "addresses": ["0", "1"]}
set -euo pipefail
indexes=$(nvidia-smi --query-gpu=index --format=csv,noheader)
printf '{"name": "gpu", "addresses": [%s]}\n' "$(sed 's/.*/"&"/' <<<"$indexes" | paste -sd, -)"
