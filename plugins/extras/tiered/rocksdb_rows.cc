// Measures the reads and writes of a step of figures.sh, with rows and states of four tables in RocksDB.
//   c++ -std=c++20 -O2 -o rocksdb_rows rocksdb_rows.cc -lrocksdb        Debian: librocksdb-dev
//   rocksdb_rows DIRECTORY ROWS FLOATS STEPS CACHE_BYTES
// Prints milliseconds per step. A step reads the different rows of 2,048 samples with 3 ids per table (Zipf 1.05) and
// writes them back without a log. Rows that were never written are new, as in tiered.
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int kTables = 4, kIds = 2048 * 3;

void check(const rocksdb::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

std::string key_of(uint32_t table, uint64_t row) {
  std::string key(8, '\0');
  const uint64_t number = uint64_t{table} << 56 | row;
  for (int i = 0; i < 8; ++i) key[static_cast<size_t>(i)] = static_cast<char>(number >> (56 - 8 * i));
  return key;
}

rocksdb::Options options_of(size_t cache_bytes) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(cache_bytes * 3 / 4);
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.cache_index_and_filter_blocks = true;
  rocksdb::Options options;
  options.create_if_missing = true;
  options.use_direct_reads = true;
  options.use_direct_io_for_flush_and_compaction = true;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = cache_bytes / 16;
  options.max_write_buffer_number = 4;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.IncreaseParallelism(2);
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: rocksdb_rows DIRECTORY ROWS FLOATS STEPS CACHE_BYTES\n");
    return 2;
  }
  const auto rows = static_cast<uint64_t>(std::atoll(argv[2]));
  const auto floats = static_cast<size_t>(std::atoll(argv[3]));
  const int steps = std::atoi(argv[4]);
  rocksdb::DB* raw = nullptr;
  check(rocksdb::DB::Open(options_of(static_cast<size_t>(std::atoll(argv[5]))), argv[1], &raw));
  const std::unique_ptr<rocksdb::DB> db(raw);
  rocksdb::WriteOptions write;
  write.disableWAL = true;
  const std::string fresh(floats * sizeof(float), 'x');

  std::vector<double> sums(rows);
  double sum = 0;
  for (uint64_t i = 0; i < rows; ++i) sums[i] = sum += std::pow(static_cast<double>(i + 1), -1.05);
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> uniform(0, sum);
  std::vector<std::string> keys, values;
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) {
    keys.clear();
    for (uint32_t t = 0; t < kTables; ++t) {
      for (int i = 0; i < kIds; ++i) {
        const auto at = std::lower_bound(sums.begin(), sums.end(), uniform(random)) - sums.begin();
        keys.push_back(key_of(t, static_cast<uint64_t>(at) * 0x9e3779b1 % rows));  // spreads popular rows
      }
    }
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    const std::vector<rocksdb::Slice> asked(keys.begin(), keys.end());
    const std::vector<rocksdb::Status> found = db->MultiGet({}, asked, &values);
    rocksdb::WriteBatch batch;
    for (size_t i = 0; i < asked.size(); ++i) {
      if (!found[i].IsNotFound()) check(found[i]);
      if (found[i].IsNotFound()) values[i] = fresh;
      values[i][0] = static_cast<char>(step);
      check(batch.Put(asked[i], values[i]));
    }
    check(db->Write(write, &batch));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%.1f\n", 1e3 * seconds / steps);
  return 0;
}
