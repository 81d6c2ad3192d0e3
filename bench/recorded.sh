#!/bin/sh
# Runs what docs/benchmarks.md records.
set -e
cd "$(dirname "$0")/.."
python=bench/clients/venv/bin/python
[ -x $python ] || "${PYTHON:-python3}" -m venv bench/clients/venv
$python -m pip install --quiet -r bench/clients/requirements.txt maturin
$python -m maturin build --release --quiet --out bench/clients/wheels
$python -m pip install --quiet --force-reinstall --no-deps --no-index --find-links bench/clients/wheels ginnel
cargo build --release --quiet --manifest-path bench/clients/server/Cargo.toml
cargo build --release --quiet --manifest-path bench/service/Cargo.toml

cd bench/clients
run="venv/bin/python run.py --hook ginnel_hook.py --no-raw --rounds ${ROUNDS:-3} --secs ${SECS:-0.5}"
$run --scenario seq,t8,pages,post,c1,c64,c256,apages,start --only "ginnel,ginnel async,pycurl+orjson,\
pycurl+orjson dataclasses,primp sync,requests.Session,ngrok-api,pyreqwest async,aiohttp+orjson,\
[floor] socket+orjson,[floor] asyncio.Protocol+orjson"
echo
echo "over HTTPS"
$run --tls --scenario seq,c64 --only "ginnel,ginnel async,pycurl+orjson,primp sync,requests.Session,\
ngrok-api,pyreqwest async,aiohttp+orjson"
cd ../service
echo
cpu=$(($(nproc) - 1))
taskset -c "$cpu" target/release/transport
echo
target/release/service
