#!/usr/bin/env bash
# Builds the source distribution and one abi3 wheel, and tries that wheel with each CPython that
# is here, in a virtual environment without Rust: the examples, and the tests of the example project.
#
#     tests/wheels.sh [PROFILE]      release unless given
#
# A release is compiled from the source distribution. `dev` packs what `make dev` has compiled of this tree, and checks
# that the source distribution has each file that this compilation has read, which takes seconds instead of minutes.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
profile=${1:-release}
maturin=$root/.venv/bin/maturin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "source distribution"
(cd "$root" && "$maturin" sdist --out "$work/dist" 2>/dev/null)
tar -xzf "$work"/dist/*.tar.gz -C "$work"
source=$(echo "$work"/ginnel-*/)

if [ "$profile" = dev ]; then
    "$root/tests/check-sdist" "$source"
    source=$root
fi

echo "wheel, profile $profile"
wheel=$("$root/tests/build-wheel" "$profile" "$work/dist" "$source")
echo "$(basename "$wheel"), $(wc -c < "$wheel") bytes"

# Where an interpreter is: on PATH, or among those of pyenv.
interpreter() {
    for found in "$(command -v "python$1" || true)" "$HOME"/.pyenv/versions/"$1".*/bin/python"$1"; do
        if [ -n "$found" ] && "$found" -c "import sys; sys.exit(sys.version_info[:2] != tuple(map(int, '$1'.split('.'))))" 2>/dev/null; then
            echo "$found"
            return
        fi
    done
}

# Runs a command with nothing of ours around it, and with no Rust to be found.
alone() {
    env -i HOME="$work" PATH="$venv/bin:$work/bin" "$@"
}

# What scripts may need; no compiler is among it.
mkdir "$work/bin"
for tool in bash env uname; do ln -s "$(command -v "$tool")" "$work/bin/$tool"; done

tried=0
for version in 3.11 3.12 3.13 3.14; do
    python=$(interpreter "$version")
    [ -n "$python" ] || { echo "$version: not here" && continue; }
    venv=$work/venv-$version
    "$python" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "$wheel" "pytest>=9"
    if alone bash -c 'command -v cargo rustc cc' >/dev/null; then
        echo "$version: there is a compiler in its environment" >&2 && exit 1
    fi
    cd "$work"
    alone python -m pip show ginnel | grep '^Requires: *$' >/dev/null
    alone ginnel --version >/dev/null
    alone python "$root/examples/remote_tour.py" >/dev/null
    alone python "$root/examples/agent_tour.py" >/dev/null
    (cd "$root/examples/webhook-receiver" && alone python -m pytest -q -p no:cacheprovider >/dev/null)
    echo "$version: $(alone python -c 'import sys, ginnel; print(sys.version.split()[0], ginnel.__version__, ginnel.__file__.split("site-packages")[1])')"
    tried=$((tried + 1))
done
[ "$tried" -gt 0 ] || { echo "no CPython was found" >&2 && exit 1; }
