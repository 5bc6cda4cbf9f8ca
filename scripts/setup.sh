#!/usr/bin/env bash
# Makes what the project needs: Java, Maven, .venv, packages, jars; with the argument gpu also the jars that decode on the
# GPU, of which RAPIDS is 576 MB. Runs again in a moment where all is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
say() { echo "setup: $*"; }
fail() { echo "error: $1" >&2; echo "  $2" >&2; exit 3; }

has_java() { # of a JDK, for Maven compiles with it; a JRE may lack the compiler
  local modules
  modules=$(java --list-modules 2>/dev/null) || return 1
  grep -q '^jdk.incubator.vector@' <<<"$modules" && grep -q '^jdk.compiler@' <<<"$modules"
}

install_tools() { # Debian package names
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
  say "installing $*"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}

find_python() {
  for name in ${PYTHON:-} python3.13 python3.12 python3.11 python3.10 python3; do
    if "$name" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  return 1
}

venv() {
  local stamp=.venv/.stamp-packages
  [ -f "$stamp" ] && [ "$stamp" -nt pyproject.toml ] && [ "$stamp" -nt constraints.txt ] && return
  local python
  python=$(find_python) || fail "no Python 3.10 to 3.13" "install one, or name it: PYTHON=/path/to/python3 make setup"
  say "packages into .venv (some 7 GB, torch above all; minutes on the first run)"
  [ -x .venv/bin/python ] || "$python" -m venv .venv ||
    fail "$python cannot make a virtual environment" "install its venv module (Debian: apt-get install python3-venv)"
  .venv/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
  touch "$stamp"
}

is_older() { # stamp folder...: whether a source in the folders is newer than the stamp
  local stamp=$1
  shift
  [ ! -f "$stamp" ] ||
    [ -n "$(find "$@" -newer "$stamp" \( -name pom.xml -o -path '*/src/*' \) -type f -not -path '*/target/*' -print -quit)" ]
}

build_tools() {
  has_java || install_tools openjdk-17-jdk-headless || true
  has_java || fail "no Java 17 or newer with the module jdk.incubator.vector" \
    "install a full JDK (Debian: apt-get install openjdk-17-jdk-headless) and put it on the PATH"
  command -v mvn >/dev/null || install_tools maven || true
  command -v mvn >/dev/null || fail "no Maven" "install it (Debian: apt-get install maven)"
}

jars() {
  local stamp=jars/target/.stamp
  is_older "$stamp" jars/pom.xml jars/kbit-jvm jars/spark jars/broker || return 0
  build_tools
  say "jars into jars/target"
  rm -rf jars/target/spark jars/target/broker
  (cd jars && mvn -B -q -Dstyle.color=never package)
  mkdir -p jars/target && touch "$stamp"
}

class_archive() { # NAME STAMP [CLASS_PATH]: JVMs that map jars/target/NAME.jsa start in less time
  local archive=jars/target/$1.jsa path=()
  [ -f "$archive" ] && [ "$archive" -nt "jars/target/$2" ] && [ "$archive" -nt .venv/.stamp-packages ] && return
  [ -z "${3:-}" ] || path=(--conf "spark.driver.extraClassPath=$3")
  say "archive of Spark's classes: $archive"
  rm -f "$archive"
  # a half-written one would end the JVMs, so it gets its name when it is whole; some Javas end well and write none
  KBIT_GPU=0 ./spark-submit.sh --driver-memory 700m --conf "spark.driver.extraJavaOptions=-XX:ArchiveClassesAtExit=$archive.new \
      -Xlog:cds*=off -Dlog4j2.configurationFile=$PWD/conf/log4j2.properties" ${path[@]+"${path[@]}"} scripts/archive_classes.py >"$archive.log" 2>&1 &&
    mv "$archive.new" "$archive" 2>>"$archive.log" ||
    say "it was not made ($archive.log says why): jobs start all the same, in more time"
}

gpu_jars() {
  local stamp=jars/target/.stamp-gpu libraries
  is_older "$stamp" jars/pom.xml jars/kbit-jvm jars/kbit-gpu || return 0
  build_tools
  libraries=$(find .venv/lib/ -path '*/nvidia/cu13/lib/libnvrtc.so.*' -printf '%h' -quit)
  [ -n "$libraries" ] || fail "no NVRTC 13 in .venv" "it comes with torch for CUDA 13 on Linux: pip install nvidia-cuda-nvrtc"
  say "jars of GPU decoding into jars/target/gpu (RAPIDS is 576 MB, fetched once)"
  rm -rf jars/target/gpu
  (cd jars && mvn -B -q -Dstyle.color=never -P gpu -pl kbit-gpu -am package "-Dkbit.gpu.libraries=$PWD/../$libraries")
  touch "$stamp"
}

[[ ${1:-} =~ ^(gpu)?$ ]] || fail "no step $1" "scripts/setup.sh [gpu]"
jars
venv
class_archive spark .stamp
if [ "${1:-}" = gpu ]; then
  gpu_jars
  class_archive gpu .stamp-gpu "$(printf '%s:' "$PWD"/jars/target/gpu/*.jar "$PWD"/jars/target/spark/kbit-jvm*.jar | sed 's/:$//')"
fi
