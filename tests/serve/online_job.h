// The job of tests that publish: tables of each sharding type, on generated data.
#pragma once

#include <chrono>
#include <string>
#include <thread>

namespace tessera::serve {

inline const std::string kOnlineJob = R"(
job = {device = "cpu", seed = 5, kernel_plugin = "cpu"}
model = {embedding_dim = 8, bottom_mlp = [8, 8], top_mlp = [8, 1]}
table = [
  {name = "c0", sharding = ["row_wise"]},
  {name = "c1", sharding = ["column_wise"], min_partition = 4},
  {name = "c2", sharding = ["data_parallel"]}]
publish = {base_every = 4, keep_bases = 100}
data = {dense = 3, rows = [400, 60, 30], columns = 3, samples = 640, test_samples = 10, batch = 32, epochs = 1}
)";

// Waits up to half a minute.
template <class Condition>
bool comes_true(const Condition& condition) {
  for (int i = 0; i < 3000; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
    if (condition()) return true;
  }
  return false;
}

}  // namespace tessera::serve
