// A DLRM of four tables on synthetic data, as a config file: seconds to train.
#pragma once

#include <string>

#include "tessera/error.h"

namespace tessera::test {

struct SmallJob {
  int samples, test_samples, epochs;  // batches of 32
  int timeout_s = 60;
};

inline std::string small_job(const SmallJob& job) {
  return str_cat(R"(
job = {seed = 3, device = "cpu", threads = 1}
model = {embedding_dim = 16, bottom_mlp = [32, 16], top_mlp = [32, 1]}
dense_optimizer = {name = "adagrad", learning_rate = 0.02}
comm = {backend = "tcp", timeout_s = )",
                 job.timeout_s, R"(}
[table_defaults]
optimizer = { name = "exact_adagrad", learning_rate = 0.05, eps = 1e-8 }
min_partition = 4
[data]
reader = "synthetic"
columns = 4
rows = [500, 300, 40, 3]
dense = 5
pooling = 3
index_dist = "zipf:1.1"
samples = )",
                 job.samples, "\ntest_samples = ", job.test_samples, "\nbatch = 32\nepochs = ", job.epochs, "\n");
}

}  // namespace tessera::test
