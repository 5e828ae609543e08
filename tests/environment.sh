# shellcheck shell=bash
# What every script of this repository shares: where it is, how it links, how it talks. Sourced, never run.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
readonly root
cd -- "$root" || exit 1

# Where cargo puts what it builds, also when the caller moved it.
target_dir=${CARGO_TARGET_DIR:-$root/target}
export target_dir

# mold halves the time of a relink where it is installed. Through the environment and not `.cargo/config.toml`, so that
# plain cargo works on a machine without it. One place, because other flags would rebuild every crate.
if command -v mold >/dev/null 2>&1; then
    export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C link-arg=-fuse-ld=mold"
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C link-arg=-fuse-ld=mold"
fi

# cargo's own folder of installed programs (cargo-nextest), which a bare login shell may not have.
export PATH="$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin"

say() { printf '%s\n' "$*"; }

# Ends the script with a message for a person: what happened, to what, what to do next.
stop() {
    printf '%s\n' "$*" >&2
    exit 1
}
