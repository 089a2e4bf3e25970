#!/usr/bin/env bash
# Runs scripts/dev/gpu_resources on compilers' outputs: a clean kernel passes; one that spills, or no output at all,
# fails.
# resources_test.sh ROOT
set -euo pipefail
script=$1/scripts/dev/gpu_resources
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" && exit 1; }
expect() { grep -qF -- "$2" <<<"$1" || fail "no \"$2\" in: $1"; }

cuda() { # spilled bytes
  printf '%s\n' "ptxas info    : Compiling entry function '_Z3sumPKfiPf' for 'sm_90'" \
    "ptxas info    : Function properties for _Z3sumPKfiPf" \
    "    $1 bytes stack frame, $1 bytes spill stores, 0 bytes spill loads" \
    "ptxas info    : Used 22 registers, used 1 barriers, 256 bytes smem"
}
hip() { # spilled registers
  local at="a.cu:16:1: remark:" by="[-Rpass-analysis=kernel-resource-usage]"
  printf '%s\n' "$at Function Name: _Z3sumPKfiPf $by" "$at     VGPRs: 12 $by" \
    "$at     ScratchSize [bytes/lane]: 0 $by" "$at     VGPRs Spill: $1 $by" "$at     LDS Size [bytes/block]: 128 $by"
}

said=$("$script" "$work" 2>&1) && fail "passed without a kernel: $said"
expect "$said" "has no GPU plugin"
cuda 0 >"$work/a.cu.o.resources"
hip 0 >"$work/b.cu.o.resources"
said=$("$script" "$work" 2>&1) || fail "a clean kernel did not pass: $said"
expect "$said" "sm_90           22      256        0        0  sum"
expect "$said" "amd             12      128        0        0  sum"
expect "$said" "2 kernels, none spills."
cuda 8 >"$work/a.cu.o.resources"
said=$("$script" "$work" 2>&1) && fail "a CUDA kernel that spills passed: $said"
expect "$said" "1 of 2 kernels spill registers"
cuda 0 >"$work/a.cu.o.resources"
hip 2 >"$work/b.cu.o.resources"
said=$("$script" "$work" 2>&1) && fail "a HIP kernel that spills passed: $said"
expect "$said" "1 of 2 kernels spill registers"
echo passed
