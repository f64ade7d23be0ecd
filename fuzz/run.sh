#!/bin/sh
# Runs one target on a stable compiler: fuzz/run.sh TARGET [SECONDS]. Seeds come from fuzz/seeds/TARGET.
set -eu
cd "$(dirname "$0")"
target=$1
seconds=${2:-60}
host=$(rustc -vV | sed -n 's/^host: //p')
# What cargo-fuzz sets, without the sanitizers that need a nightly compiler.
RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1" \
    cargo build --release --target "$host" --bin "$target"
mkdir -p "corpus/$target" "artifacts/$target"
exec "target/$host/release/$target" -max_total_time="$seconds" -rss_limit_mb=256 -timeout=5 \
    -artifact_prefix="artifacts/$target/" "corpus/$target" $([ -d "seeds/$target" ] && echo "seeds/$target")
