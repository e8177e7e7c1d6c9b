#!/bin/sh
# The main job on the rehearsal host: a profile goes in, verified per-kernel CSVs come out.
#   sh examples/first-light.sh [FOLDER]
set -eu
project=$(cd "$(dirname "$0")/.." && pwd)
database=${1:-first-light-db}

cargo build --release --locked --manifest-path "$project/Cargo.toml"
npubench=${CARGO_TARGET_DIR:-$project/target}/release/npubench

"$npubench" ingest "$project/examples/decoder-layer/kernel_details.csv" --db "$database" --kind rehearsal
"$npubench" run --db "$database" --host rehearsal --devices 0-3
