"""Small programs of every day on two ranks: everyday_ranks.py torchrec|tessera [NAME...] tells what each comes to."""

import json
import os
import sys
import warnings

import torch.distributed as dist

import everyday_ranks_dense  # noqa: F401
import everyday_ranks_tables  # noqa: F401
import everyday_ranks_wrapped  # noqa: F401
from everyday_common import tr
from everyday_ranks_common import PROGRAMS

# Programs that tell something else with TorchRec. Those that tell first whether all is right tell so here.
OTHERWISE = {
    "freeze_and_unfreeze": "TorchRec takes no dense parameter that is frozen or trained later",
    "frozen_from_the_start": "TorchRec takes no dense part without a trained parameter",
    "another_head": "ranks of TorchRec train a layer that is replaced apart",
    "vectors": "rows of TorchRec's tables do not follow an assigned parameter",
    "weight_gradients": "TorchRec gives weights no gradient",
    "rows_that_were_there": "TorchRec draws rows anew when a collection is sharded",
}

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    tr.choose(sys.argv[1])
    if sys.argv[1] == "torchrec":
        from torchrec.distributed.embedding import EmbeddingCollectionSharder
        from torchrec.optim import RowWiseAdagrad

        tr.EmbeddingCollectionSharder, tr.RowWiseAdagrad = EmbeddingCollectionSharder, RowWiseAdagrad
    dist.init_process_group("gloo")
    for name in sys.argv[2:] or PROGRAMS:
        try:
            out = PROGRAMS[name]()
        except Exception as error:
            out = f"{type(error).__name__}: {error}"
        if dist.get_rank() == 0:
            print("told: " + json.dumps({name: out}), flush=True)
    dist.destroy_process_group()
    os._exit(0)  # as in program.py
