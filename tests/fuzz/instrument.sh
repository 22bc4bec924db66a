#!/bin/sh
# Cargo calls this in place of rustc for the crates of this workspace when `cargo xtask fuzz` builds: their edges
# count how often they are taken, so that libFuzzer sees where an input leads. Stable Rust can do that.
# The dependencies stay as every other build has them, and are shared with it.
rustc=$1
shift
case " $* " in
*" --crate-name build_script_"* | *" --crate-type proc-macro "* | *" --crate-name ___ "*) exec "$rustc" "$@" ;;
esac
exec "$rustc" "$@" \
    -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Copt-level=1 -Cdebug-assertions=on -Coverflow-checks=on --cfg fuzzing
