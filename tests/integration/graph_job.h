// Shared pieces of jobs whose models are graphs of layers.
#pragma once

#include <string>

namespace tessera::test {

// Has no tables and layers. A table has rows of 8 unless it says otherwise; the data has columns c0, c1 and c2.
inline const std::string kGraphJob = R"(
job = {seed = 3, device = "cpu", threads = 1}
comm = {backend = "tcp"}
[model]
embedding_dim = 8
inputs = ["dense", "c0", "c1", "c2"]
[table_defaults]
optimizer = {name = "exact_adagrad", learning_rate = 0.05, eps = 1e-8}
[data]
reader = "synthetic"
columns = 3
rows = [300, 50, 20]
dense = 5
pooling = 2
samples = 1200
test_samples = 300
batch = 32
)";
// The three tables, the last with rows of 4.
inline const std::string kGraphTables = R"(
[[table]]
name = "c0"
[[table]]
name = "c1"
[[table]]
name = "c2"
embedding_dim = 4
)";

// Compares a layer "states" with drawn items, and ranks all items for it.
inline const std::string kItemHeads = R"([[layer]]
name = "compared"
type = "item_loss"
inputs = ["states", "next", "drawn", "next:ids", "drawn:ids"]
[[layer]]
name = "ranks"
type = "item_ranks"
inputs = ["states", "all", "next:ids", "all:ids", "seen:ids"]
options = {seen = true}
[[head]]
name = "loss"
input = "compared"
loss = "product"
[[head]]
name = "rank"
input = "ranks"
loss = "product"
)";

}  // namespace tessera::test
