#!/usr/bin/env bash
# Builds an earlier commit, and runs its agent with the service of this tree and the reverse, with every option of
# tunnels and real traffic. The package of this tree must be built: make dev.
#
#     tests/compat/old_agent.sh [COMMIT]      the commit whose binds tests/data/protocol has, unless given
#
# OLD_PACKAGES names a folder with a built package of that commit, which is used instead of building one.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
commit=${1:-$(ls "$root/tests/data/protocol" | tail -1)}
python=$root/.venv/bin/python
work=$(mktemp -d)
clean_up() {
    git -C "$root" worktree remove --force "$work/tree" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT

packages=${OLD_PACKAGES:-}
if [ -z "$packages" ]; then
    git -C "$root" worktree add --quiet --detach "$work/tree" "$commit"
    # Dependencies are shared with this tree; crates of the workspace are not, as they have other paths.
    (cd "$work/tree" && CARGO_TARGET_DIR=$root/target "$root/.venv/bin/maturin" build --quiet --profile dev --out "$work/dist")
    packages=$work/packages
    "$python" -m zipfile -e "$work"/dist/*.whl "$packages"
fi

echo "commit $commit and this tree"
"$python" "$root/tests/compat/exchange.py" "$packages" "$root/python"
