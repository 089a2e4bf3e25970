"""Trains two sharded tables: does this user like that film? Alone, or on N ranks:

python -m tessera launch -n 2 -- python train_tables.py [CHECKPOINT_DIRECTORY]
"""

import sys

import numpy as np

import tessera

USERS, FILMS, DIM, BATCH, STEPS = 500, 300, 8, 64, 300

group = tessera.ProcessGroup()  # the ranks that a launcher has started; without a launcher, one rank
tables = tessera.EmbeddingBagCollection(
    [tessera.EmbeddingBagConfig(USERS, DIM, "user"), tessera.EmbeddingBagConfig(FILMS, DIM, "film")],
    optimizer=tessera.Optimizer("exact_rowwise_adagrad", learning_rate=0.1),
    planner=tessera.Planner(shardings={"user": tessera.row_wise(), "film": tessera.table_wise(0)}),
    group=group,
)
bias = np.zeros(1, np.float32)  # the dense part: every rank has it
random = np.random.default_rng(group.rank)  # every rank has samples of its own
for number in range(1, STEPS + 1):
    user, film = random.integers(0, USERS, BATCH), random.integers(0, FILMS, BATCH)
    label = (user % 2 == film % 2).astype(np.float32)  # the taste that is to be learnt
    step = tables.forward(np.concatenate([user, film]), np.ones(2 * BATCH, np.int32))
    rows = step.output.reshape(BATCH, 2, DIM)  # this rank's samples; the rows may live anywhere
    chance = 1 / (1 + np.exp(-bias - rows.prod(axis=1).sum(axis=1)))
    gradient = (chance - label) / BATCH
    step.backward((gradient[:, None, None] * rows[:, ::-1]).reshape(BATCH, 2 * DIM))  # updates rows where they live
    of_bias = gradient.sum(keepdims=True)
    group.all_reduce(of_bias)
    bias -= 0.1 * of_bias / group.world_size
    if group.rank == 0 and number % 100 == 0:
        print(f"step {number}, loss {-np.log(np.where(label > 0, chance, 1 - chance)).mean():.4f}", flush=True)
if len(sys.argv) > 1:
    tables.save(sys.argv[1])
group.barrier()  # nobody leaves while another one still needs it
