"""On each rank: trains the model of test_pack.py with cut tables, the same batch on both ranks, and packs it."""

import sys

import torch.distributed as dist

import tessera.torch as tt
from test_pack import Model, trained

dist.init_process_group("tessera")
model = tt.DistributedModelParallel(
    Model(),
    plan=tt.ShardingPlan({"sparse": {"user": tt.row_wise(), "item": tt.column_wise([0, 1])}}),
)
trained(model)
tt.pack(model, sys.argv[1], format="fp32")
if dist.get_rank() == 0:
    print("packed", flush=True)
dist.barrier()
dist.destroy_process_group()
