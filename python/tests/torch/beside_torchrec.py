"""On each rank: random models in TorchRec and in tessera.torch, the same weights and batches, step by step.

beside_torchrec.py CASES [SEED]: prints a line for each case, and fails where outputs, gradients of the ids' weights or
updated rows differ.
"""

import sys

import torch.distributed as dist
from torchrec_cases import case_of, theirs
from torchrec_cases import torchrec as their_library

import tessera.torch as tt
from torch_side import compare, ours

if __name__ == "__main__":
    cases, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    dist.init_process_group("gloo")
    group = tt.process_group()
    for number in range(seed, seed + cases):
        case = case_of(number, dist.get_world_size())
        if dist.get_rank() == 0:
            cuts = {table["name"]: table["cut"] for table in case["tables"]}
            words = [word for word in ("weighted", "variable") if case[word]]
            print(f"case {number}:", *words, case["kind"], case["pooling"], case["optimizer"], cuts, flush=True)
        expected = theirs(case)
        kjt = tt.KeyedJaggedTensor if number % 2 else their_library.KeyedJaggedTensor  # TorchRec's own is taken, too
        compare(ours(case, expected["start"], dist.get_rank(), group, kjt), expected)
    if dist.get_rank() == 0:
        print("all agree", flush=True)
    group.barrier()
    dist.destroy_process_group()
