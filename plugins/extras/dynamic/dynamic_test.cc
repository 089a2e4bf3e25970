// Compares the surviving ids and their rows with plain lists for each bucket: LRU, LFU and decayed counts, with a time
// to live, in one table and divided among several owners. Also tests admission, evaluation, export and import.
#include <unistd.h>

#include <bit>
#include <fstream>
#include <numeric>
#include <thread>

#include "test_bed.h"

namespace {

using namespace extras;

// Buckets of a test's table of kAnyId rows.
Buckets buckets_of(int64_t capacity) { return {capacity, Cells::count(kAnyId)}; }

// Follows the rules of docs/dynamic_tables.md with a plain list of ids for each bucket.
class Oracle {
 public:
  struct Known {
    int64_t last;
    float count;
    float value;  // value of column 0
    int updates;
  };
  Oracle(int64_t capacity, std::string evict, double half_life, int64_t ttl, bool tinylfu = false)
      : buckets_(buckets_of(capacity)),
        evict_(std::move(evict)),
        half_life_(half_life),
        ttl_(ttl),
        lists_(buckets_.count) {
    if (tinylfu) sketch_ = Sketch(buckets_.count, buckets_.slots);
  }

  void step(int64_t step, const std::vector<int64_t>& ids) {
    std::map<int64_t, int> seen;
    for (const int64_t id : ids) ++seen[id];
    std::map<int64_t, std::vector<int64_t>> new_ids;
    for (const auto& [id, times] : seen) {
      auto& list = lists_[bucket(id)];
      const auto at = list.find(id);
      if (at == list.end()) {
        new_ids[bucket(id)].push_back(id);
        continue;
      }
      Known& known = at->second;
      const bool gone = ttl_ > 0 && step - known.last > ttl_;
      if (gone) known = {step, 0, start_of(id, 0), 0};
      known.count = score(known, step);
      for (int i = 0; i < times; ++i) known.count += 1;
      known.last = step;
    }
    for (auto& [b, wanted] : new_ids) {
      std::sort(wanted.begin(), wanted.end(), [&](int64_t a, int64_t c) {
        return seen[a] != seen[c] ? seen[a] > seen[c] : scrambled(a) < scrambled(c);
      });
      for (const int64_t id : wanted) insert(b, id, step, seen[id]);
    }
    for (const auto& [id, times] : seen) {
      const auto at = lists_[bucket(id)].find(id);
      if (at == lists_[bucket(id)].end()) continue;
      at->second.value -= kRate * static_cast<float>(times);
      ++at->second.updates;
    }
  }
  std::map<int64_t, Known> all() const {
    std::map<int64_t, Known> out;
    for (const auto& list : lists_) out.insert(list.begin(), list.end());
    return out;
  }
  int64_t evictions = 0, refused = 0;  // refused: newcomers rejected in favour of ids seen more often

 private:
  size_t bucket(int64_t id) const { return static_cast<size_t>(buckets_.of(scrambled(id))); }
  float score(const Known& known, int64_t step) const {
    if (evict_ != "decayed" || step == known.last) return known.count;
    return known.count * std::exp2(-static_cast<float>(step - known.last) / static_cast<float>(half_life_));
  }
  void insert(int64_t bucket, int64_t id, int64_t step, int times) {
    std::map<int64_t, Known>& list = lists_[static_cast<size_t>(bucket)];
    if (!sketch_.empty()) {
      const uint64_t hash = scrambled(id);
      times = static_cast<int>(sketch_.add({id, hash, buckets_.of(hash)}, static_cast<uint32_t>(times)));
    }
    if (std::ssize(list) == buckets_.slots_of(bucket)) {
      auto worst = list.end();
      const auto rank = [&](const auto& k) {
        const bool gone = ttl_ > 0 && step - k.second.last > ttl_;
        const float by = gone ? -1 : evict_ == "lru" ? 0 : score(k.second, step);
        return std::tuple(by, k.second.last, scrambled(k.first));
      };
      for (auto at = list.begin(); at != list.end(); ++at) {
        if (at->second.last != step && (worst == list.end() || rank(*at) < rank(*worst))) worst = at;
      }
      if (worst == list.end()) return;
      if (!sketch_.empty() && std::get<0>(rank(*worst)) > static_cast<float>(times)) {
        ++refused;
        return;
      }
      list.erase(worst);
      ++evictions;
    }
    list[id] = {step, static_cast<float>(times), start_of(id, 0), 0};
  }

  Buckets buckets_;
  std::string evict_;
  double half_life_;
  int64_t ttl_;
  Sketch sketch_;
  std::vector<std::map<int64_t, Known>> lists_;
};

void compare(const std::map<int64_t, Row>& got, const std::map<int64_t, Oracle::Known>& want, const char* what) {
  expect(got.size() == want.size(), what, ": ", got.size(), " ids survive, not ", want.size());
  for (const auto& [id, known] : want) {
    const auto at = got.find(id);
    expect(at != got.end(), what, ": id ", id, " does not survive");
    if (at == got.end()) continue;
    expect(std::abs(at->second.values[0] - known.value) < 1e-3f * (1 + std::abs(known.value)), what, ": row of id ", id,
           " is ", at->second.values[0], ", not ", known.value);
    expect(at->second.updates == 0.25f + static_cast<float>(known.updates), what, ": id ", id, " was updated ",
           at->second.updates, " times, not ", known.updates);
  }
}

std::string options_of(const std::string& evict, int64_t capacity, int64_t ttl, bool tinylfu = false) {
  return "{\"capacity\":" + std::to_string(capacity) + ",\"evict\":\"" + evict +
         (evict == "decayed" ? "\",\"half_life\":7" : "\"") + ",\"ttl_steps\":" + std::to_string(ttl) +
         (tinylfu ? ",\"admit\":\"tinylfu\"}" : "}");
}

void check_survivors(const std::string& evict, int64_t capacity, int64_t ttl, bool tinylfu = false) {
  Bed bed(kAnyId, options_of(evict, capacity, ttl, tinylfu));
  Oracle oracle(capacity, evict, 7, ttl, tinylfu);
  // The same table divided among four owners: owner b * 4 / buckets has bucket b.
  std::vector<std::unique_ptr<Bed>> parts;
  for (int p = 0; p < 4; ++p) parts.push_back(std::make_unique<Bed>(kAnyId, options_of(evict, capacity, ttl, tinylfu)));
  const Buckets buckets = buckets_of(capacity);
  std::mt19937_64 random(11);
  for (int64_t step = 1; step <= 60; ++step) {
    const std::vector<int64_t> ids = drawn(random, 400, 5000);
    bed.step(step, ids);
    oracle.step(step, ids);
    std::vector<int64_t> of_part[4];  // each owner's ids, in another order
    for (auto id = ids.rbegin(); id != ids.rend(); ++id)
      of_part[buckets.of(scrambled(*id)) * 4 / buckets.count].push_back(*id);
    for (size_t p = 0; p < 4; ++p) parts[p]->step(step, of_part[p]);
    if (step % 20 != 0) continue;
    compare(bed.rows(), oracle.all(), evict.c_str());
    std::map<int64_t, Row> together;
    for (auto& part : parts) together.merge(part->rows());
    compare(together, oracle.all(), "four owners");
  }
  expect(oracle.evictions > 100, "the oracle evicted ", oracle.evictions, " ids: too few to tell");
  expect(!tinylfu || oracle.refused > 10, "the oracle refused ", oracle.refused, " ids: too few to tell");
  expect(bed.stats().rows_in_use == oracle.all().size(), "rows in use");
  expect(bed.stats().evictions >= static_cast<uint64_t>(oracle.evictions), "evictions");
}

// An evaluation reads existing rows, creates none, and protects none from eviction.
void check_reads_only() {
  Bed bed(kAnyId, R"({"capacity":4})"), undisturbed(kAnyId, R"({"capacity":4})");
  for (Bed* b : {&bed, &undisturbed}) {
    for (int64_t step = 1; step <= 4; ++step) b->step(step, {step * 100});
  }
  const std::vector<float> read = bed.step(5, {100, 777}, true);
  expect(read[0] == start_of(100, 0) - kRate, "an evaluation gives ", read[0], " for a row of ",
         start_of(100, 0) - kRate);
  expect(read[kDim] == 0, "an evaluation gives ", read[kDim], " where there is no row");
  for (Bed* b : {&bed, &undisturbed}) b->step(5, {500});
  const auto got = bed.rows(), want = undisturbed.rows();
  expect(got.size() == 4 && got.contains(500) && !got.contains(100), "the evaluation kept id 100 from being evicted");
  for (const auto& [id, row] : want)
    expect(got.contains(id) && got.at(id).extra.step == row.extra.step, "the evaluation was seen by id ", id);
}

void check_admission() {
  Bed third(kAnyId,
            std::string(R"({"capacity":1000,"admit_after":3)") + (kStartsAbsent ? R"(,"absent":"start"})" : "}"));
  for (int64_t step = 1; step <= 4; ++step) {
    const std::vector<float> out = third.step(step, {5, 6, 6});
    const float starts = kStartsAbsent || step > 2 ? start_of(5, 0) : 0;
    expect(out[0] == starts - (step == 4 ? kRate : 0), "id 5 gives ", out[0], " in step ", step);
  }
  // Id 6 got a row at its fourth sighting, id 5 at its third.
  const auto rows = third.rows();
  expect(rows.size() == 2 && rows.at(5).updates == 2.25f && rows.at(6).updates == 3.25f,
         "admitted after 3 sightings: ", rows.size(), " rows");
  Bed zero(kAnyId, R"({"capacity":1000,"admit_after":2})");
  expect(zero.step(1, {5})[0] == 0, "an id without a row is not 0");
  Bed some(kAnyId, R"({"capacity":20000,"admit_probability":0.25})");
  const auto pass = [&](int64_t first) {  // looks up 4000 ids
    for (int64_t step = 0; step < 10; ++step) {
      std::vector<int64_t> ids(400);
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = (400 * step + static_cast<int64_t>(i)) * 12345;
      some.step(first + step, ids);
    }
    return some.stats().rows_in_use;
  };
  const uint64_t one = pass(1);
  expect(one > 900 && one < 1100, "of 4000 ids ", one, " were admitted, of probability 0.25");
  const uint64_t two = pass(11);
  expect(two > 1620 && two < 1880, "of 4000 ids ", two, " were admitted in two passes");
}

// A bucket full of this step's ids accepts no more of them, and nothing fails.
void check_full_bucket() {
  Bed bed(kAnyId, R"({"capacity":3})");
  const std::vector<float> out = bed.step(1, {10, 11, 12, 13, 14, 12, 13, 14});
  const auto rows = bed.rows();
  expect(rows.size() == 3 && rows.contains(12) && rows.contains(13) && rows.contains(14),
         "the ids that the batch has twice come first");
  expect(out[0] == 0 && out[2 * kDim] == start_of(12, 0), "ids without a row give 0, the others their rows");
  expect(rows.at(12).values[0] == start_of(12, 0) - 2 * kRate, "both gradients reach the row of id 12");
}

// A time to live may be in seconds. The times of steps are kept at a resolution of 1/256 of it.
void check_seconds() {
  Bed bed(kAnyId, R"({"capacity":100,"ttl_seconds":60})");
  for (int64_t step = 1; step <= 10; ++step) {
    bed.time = 1e9 + 10.0 * static_cast<double>(step);
    bed.step(step, step == 1   ? std::vector<int64_t>{1, 2}
                   : step == 5 ? std::vector<int64_t>{2}
                               : std::vector<int64_t>{3});
  }
  bed.time += 1;
  bed.step(11, {1, 2, 3});
  const auto rows = bed.rows();
  expect(rows.at(1).updates == 1.25f, "id 1, unseen for 91 s, starts again: ", rows.at(1).updates);
  expect(rows.at(2).updates == 3.25f, "id 2, unseen for 51 s, goes on: ", rows.at(2).updates);
}

void check_pinned() {
  char path[] = "/tmp/pinned-ids-XXXXXX";
  close(mkstemp(path));
  const auto options = [&](const char* ids) {
    std::ofstream(path) << ids;
    return "{\"capacity\":4,\"admit_probability\":0.5,\"pinned\":\"" + std::string(path) + "\"}";
  };
  Bed bed(kAnyId, options("900\n100\n"));
  bed.step(1, {100, 900});
  for (int64_t step = 2; step <= 60; ++step) bed.step(step, {step * 7, step * 11, step * 13, step * 17});
  const auto rows = bed.rows();
  expect(rows.size() == 4 && rows.contains(100) && rows.contains(900), "pinned ids come in, and never go");
  const auto refused = [](const std::string& wrong, const char* what) {
    try {
      Bed bed(1000, wrong);
      expect(false, what, " is taken");
    } catch (const Failure&) {
    }
  };
  for (const char* ids : {"900\nnine\n", "900 901\n", "-3\n", "9223372036854775807\n", ""}) refused(options(ids), ids);
  for (const char* wrong : {R"({"pinned":"/nowhere/ids"})", R"({"ttl_seconds":-1})"}) refused(wrong, wrong);
  unlink(path);
}

// Rows that another instance imports continue in the same way.
void check_moves(const std::string& evict) {
  // Sightings of ids without a row are also imported.
  std::string options = options_of(evict, 1000, 9);
  options.insert(1, "\"admit_after\":2,");
  Bed first(kAnyId, options), imported(kAnyId, options);
  std::mt19937_64 random(5);
  for (int64_t step = 1; step <= 30; ++step) first.step(step, drawn(random, 400, 5000));
  imported.import(first.rows());
  Stream extra;
  first.tables().save_extra(0, ExtraBytes(extra.io));
  imported.tables().add_extra(0, ExtraBytes(extra.io));
  expect(extra.at == extra.bytes.size() && extra.at > 0, "all that was kept besides rows is read");
  for (int64_t step = 31; step <= 60; ++step) {
    const std::vector<int64_t> ids = drawn(random, 400, 5000);
    for (Bed* bed : {&first, &imported}) bed->step(step, ids);
  }
  const auto want = first.rows();
  expect(first.stats().evictions > 200, "too few evictions to tell");
  const auto got = imported.rows();
  expect(got.size() == want.size(), evict, ": ", got.size(), " rows after a move, not ", want.size());
  for (const auto& [id, row] : want) {
    expect(got.contains(id) && got.at(id).values == row.values && got.at(id).updates == row.updates, evict, ": id ", id,
           " continues differently");
  }
}

// A smaller table keeps the highest-ranked ids of each bucket, whatever the order in which they are imported.
void check_less_room(const std::string& evict) {
  Bed first(kAnyId, options_of(evict, 128, 0)), few(kAnyId, options_of(evict, 70, 0));
  std::mt19937_64 random(7);
  for (int64_t step = 1; step <= 30; ++step) first.step(step, drawn(random, 40, 1000));
  const auto all = first.rows();
  few.import(all);
  const auto kept = few.rows();
  const Buckets buckets = buckets_of(70);
  std::map<int64_t, std::vector<std::tuple<float, uint32_t, uint64_t, int64_t>>> ranked;  // per bucket
  for (const auto& [id, row] : all) {
    const float count = evict == "lru"   ? 0
                        : evict == "lfu" ? static_cast<float>(row.extra.count_bits)
                                         : std::bit_cast<float>(row.extra.count_bits) *
                                               std::exp2(-static_cast<float>(30 - row.extra.step) / 7);
    ranked[buckets.of(scrambled(id))].emplace_back(count, row.extra.step, scrambled(id), id);
  }
  size_t want = 0;
  for (auto& [bucket, rows] : ranked) {
    std::sort(rows.rbegin(), rows.rend());
    const int64_t slots = buckets.slots_of(bucket);
    if (std::ssize(rows) > slots) rows.resize(static_cast<size_t>(slots));
    want += rows.size();
    for (const auto& [count, step, hash, id] : rows) {
      expect(kept.contains(id) && kept.at(id).values == all.at(id).values, evict, ": id ", id, " ranks high, and goes");
      if (kept.contains(id)) expect(kept.at(id).extra.step == step, evict, ": id ", id, " was seen at another time");
    }
  }
  expect(kept.size() == want && want < all.size(), evict, ": ", kept.size(), " of ", all.size(), " rows, not ", want);
  expect(few.stats().evictions == 0, evict, ": ", few.stats().evictions, " rows are evicted that had no room");
}

// Counts of one policy are converted for another, to whole numbers if that policy uses them.
void check_other_counts() {
  const std::string start = R"({"capacity":100,"evict":")";
  Bed lfu(kAnyId, start + "lfu\"}"), decayed(kAnyId, start + R"(decayed","half_life":1e9})"),
      back(kAnyId, start + "lfu\"}");
  for (int64_t step = 1; step <= 9; ++step)
    lfu.step(step, step < 4 ? std::vector<int64_t>{5, 5, 6} : std::vector<int64_t>{5});
  decayed.import(lfu.rows());
  decayed.step(10, {5, 6});
  expect(std::bit_cast<float>(decayed.rows().at(5).extra.count_bits) == 13 &&
             std::bit_cast<float>(decayed.rows().at(6).extra.count_bits) == 4,
         "what lfu has counted is not what decayed continues with");
  back.import(decayed.rows());
  back.step(11, {5});
  expect(back.rows().at(5).extra.count_bits == 14 && back.rows().at(6).extra.count_bits == 4,
         "what decayed has counted is not what lfu continues with");
}

// If there are many ids, a table uses nearly all rows of its capacity. Cells never divide its buckets.
void check_room() {
  for (const int64_t rows : {1, 15, 63, 64, 117, 127, 300, 1000, 3000, 8000, 10000}) {
    for (const int64_t capacity : {rows / 2, rows / 3}) {
      if (capacity == 0) continue;
      Bed bed(rows, "{\"capacity\":" + std::to_string(capacity) + "}");
      for (int64_t first = 0; first < rows; first += 400) {
        std::vector<int64_t> ids(static_cast<size_t>(std::min<int64_t>(400, rows - first)));
        std::iota(ids.begin(), ids.end(), first);
        bed.step(1 + first, ids);
      }
      const auto in_use = static_cast<int64_t>(bed.stats().rows_in_use);
      expect(in_use <= capacity && in_use * 10 >= capacity * 9, "of room for ", capacity, " rows ", in_use,
             " are used");
    }
    const Buckets buckets(rows, Cells::count(rows));
    int64_t room = 0;
    for (int64_t b = 0; b < buckets.count; ++b) room += buckets.slots_of(b);
    expect(room == rows, "the buckets of ", rows, " rows have room for ", room);
    expect(buckets.count % Cells::count(rows) == 0, "a cut of ", rows, " rows goes through a bucket");
    expect(buckets.slots <= Buckets::kSlots && buckets.slots >= std::min(rows, Cells::kRows), "a bucket of ", rows,
           " rows has ", buckets.slots, " slots");
  }
}

// An imported row that was last seen long ago is evicted first, whatever its line's `low` was.
void check_older_row() {
  for (int64_t older = 3; older <= 31; ++older) {
    Bed bed(kAnyId, R"({"capacity":31})");  // one bucket
    for (int64_t id = 1; id <= 31; ++id) bed.step(id, {id});
    bed.step(40, {100});
    expect(!bed.rows().contains(1) && bed.rows().contains(2), "the longest unseen goes first");
    Row row = bed.rows().at(older);
    row.extra.step = 1;
    bed.import({{older, row}});
    bed.step(41, {101});
    expect(!bed.rows().contains(older) && bed.rows().contains(2), "id ", older,
           " was seen before id 2, and outlives it");
  }
}

void check_refusals() {
  for (const char* options :
       {R"({"evict":"fifo"})", R"({"capacity":-1})", R"({"capacity":0})", R"({"admit_after":300})",
        R"({"admit_probability":0})", R"({"capacities":7})", R"({"max_bytes":50})",
        R"({"evict":"decayed","half_life":0})", R"({"evict":"lfu","half_life":7})", R"({"absent":"one"})",
        R"({"admit":"often"})", R"({"admit":"tinylfu"})"}) {
    try {
      Bed bed(1000, options);
      expect(false, options, " is taken");
    } catch (const Failure&) {
    }
  }
  try {
    Bed bed(kAnyId, "{}");
    expect(false, "a table of 2^62 rows needs a capacity");
  } catch (const Failure&) {
  }
  Bed few(kAnyId, R"({"max_bytes":840})");  // 10 rows of 20 columns and a state
  for (int64_t step = 1; step <= 50; ++step) few.step(step, {step});
  expect(few.stats().rows_in_use == 10, "max_bytes holds ", few.stats().rows_in_use, " rows, not 10");
}

// A planner asks for estimates of bands of the rows. Most bands have less than a row of the capacity, but their bytes
// add up to those of the capacity.
void check_estimates() {
  constexpr int64_t kRows = int64_t{1} << 40, kCapacity = 500;
  const Bed bed(kRows, R"({"capacity":500})");
  uint64_t sum = 0, on_disk = 0;
  for (int64_t first = 1; first < kRows; first *= 4) {
    const tsr_estimate band = bed.estimate(first == 1 ? 4 : 3 * first);
    sum += band.bytes;
    on_disk += band.storage_bytes;
  }
  const tsr_estimate all = bed.estimate(kRows);
  constexpr uint64_t kRounded = 60;  // bytes lost by rounding: one per figure and band
  const uint64_t least = kCapacity * (kDim + 1) * sizeof(float);
  expect(all.bytes >= least && all.bytes < 1000 * least, kCapacity, " rows are estimated to be ", all.bytes, " bytes");
  expect(sum <= all.bytes && all.bytes - sum < kRounded, "bands have ", sum, " bytes of ", all.bytes);
  expect(on_disk <= all.storage_bytes && all.storage_bytes - on_disk < kRounded, "bands have ", on_disk, " bytes of ",
         all.storage_bytes, " on disk");
}

void check_clamp() {
  Bed bed(kAnyId, R"({"capacity":10})", 0.5);
  bed.step(1, {3, 3}, false, 4);
  expect(bed.rows().at(3).values[0] == start_of(3, 0) - kRate * 1, "each id's gradient is clamped to 0.5");
}

#ifndef TESTS_VIRTUAL_TABLES
void check_sums() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const int64_t dim : {1, 15, 16, 64, 100, 200}) {
    std::vector<float> values(static_cast<size_t>(dim) * 20), scales(20), want(static_cast<size_t>(dim)), got(want);
    for (float& x : values) x = normal(random);
    for (float& x : scales) x = normal(random);
    std::vector<const float*> rows;
    for (int64_t i = 0; i < 20; ++i) rows.push_back(values.data() + i * dim);
    sums::portable(rows.data(), scales.data(), 20, dim, want.data());
    double plain = 0;
    for (size_t i = 0; i < 20; ++i) plain += double{scales[i]} * rows[i][dim - 1];
    expect(std::abs(want.back() - plain) < 1e-4, "sum of ", dim, " columns: ", want.back(), ", not ", plain);
    choose_sums()(rows.data(), scales.data(), 20, dim, got.data());
    for (size_t d = 0; d < got.size(); ++d)
      expect(std::abs(got[d] - want[d]) < 1e-4f, "column ", d, " of ", dim, ": ", got[d], ", not ", want[d]);
  }
}

#endif
// Changes since a mark are the changed rows and the ids that lost theirs. Applied to the rows at the mark, they must
// give the current rows. There are two followers; one sets marks less often.
void check_changes() {
  std::mt19937_64 random(8);
  Bed bed(kAnyId, R"({"capacity":300,"evict":"lfu"})");
  Changes& draft = bed.tables();
  const auto is_table = [&](std::map<int64_t, Row> model, const std::map<int64_t, Row>& changed,
                            const std::vector<int64_t>& gone) {
    for (const int64_t id : gone) expect(model.erase(id) == 1 && !changed.contains(id), "id ", id, " was not there");
    for (const auto& [id, row] : changed) model[id] = row;
    const std::map<int64_t, Row> now = bed.rows();
    expect(model.size() == now.size(), model.size(), " rows by changes, and there are ", now.size());
    for (const auto& [id, row] : now) {
      expect(model.contains(id) && model.at(id).values == row.values, "row ", id, " by changes is another one");
      const Row& by_changes = model[id];
      expect(by_changes.updates == row.updates && by_changes.extra.step == row.extra.step &&
                 by_changes.extra.count_bits == row.extra.count_bits,
             "row ", id, " has other states, or was sighted otherwise");
    }
  };
  const auto batch = [&] {
    std::vector<int64_t> ids(60);
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % 20 * (random() % 40));
    return ids;
  };
  int64_t step = 0, removed = 0;
  for (; step < 20;) bed.step(++step, batch());
  size_t more = 0;  // how many more changes the follower with fewer marks sees
  std::map<int64_t, Row> seldom;
  for (int round = 0; round < 10; ++round) {
    if (round % 4 == 0) {
      draft.mark(1);
      seldom = bed.rows();
    }
    draft.mark(0);
    const std::map<int64_t, Row> model = bed.rows();
    expect(draft.changes(0, 0).changed == 0 && draft.changes(0, 0).removed == 0,
           "something changed right after a mark");
    for (int i = 0; i < 3; ++i) bed.step(++step, batch(), false, i == 1 ? 0.f : 1.f);
    const RowChanges counted = draft.changes(0, 0);
    const std::vector<int64_t> gone = bed.removed(5);
    const std::map<int64_t, Row> changed = bed.changed(7);
    expect(std::ssize(gone) == counted.removed && std::ssize(changed) == counted.changed,
           "they are others than counted");
    expect(counted.changed > 0 && counted.changed <= 180, counted.changed, " rows changed in 3 steps of 60 ids");
    is_table(model, changed, gone);
    is_table(seldom, bed.changed(7, 1), bed.removed(5, 1));
    more += bed.changed(7, 1).size() - changed.size();
    removed += counted.removed;
  }
  expect(more > 50, "only ", more, " rows changed before the mark of the one who marks often");
  expect(removed > 20, "only ", removed, " rows were given up: too few to tell");
}

// If an id loses its row between forward and backward, its gradient is dropped.
void check_evicted_between() {
  Bed bed(kAnyId, R"({"capacity":3})");
  bed.between = [&] { bed.step(2, {2, 3, 4}); };
  bed.step(1, {1, 1});
  const auto rows = bed.rows();
  expect(rows.size() == 3 && !rows.contains(1), "id 1 goes while its gradient is on the way");
  for (const auto& [id, row] : rows)
    expect(row.values[0] == start_of(id, 0) - kRate && row.updates == 1.25f, "id ", id, " got what was for id 1");
}

#ifdef TESTS_VIRTUAL_TABLES
void check_refusals_of_disk() {
  for (const char* options : {R"({"capacity":9,"absent":"start"})", R"({"capacity":9,"directory":"/nowhere/at/all"})",
                              R"({"capacity":9,"io":"tape"})", R"({"capacity":9,"cache_row":9})"}) {
    try {
      Bed bed(kAnyId, options);
      expect(false, options, " is taken");
    } catch (const Failure&) {
    }
  }
}

// A thread that prefetches rows of later steps changes nothing, and saves lookups from waiting.
void check_prefetch_beside() {
  Bed bed(kAnyId, R"({"capacity":3000,"evict":"lfu"})");
  Oracle oracle(3000, "lfu", 7, 0);
  std::mt19937_64 random(12);
  std::vector<std::vector<int64_t>> batches;
  for (int i = 0; i < 120; ++i) batches.push_back(drawn(random, 400, 12000));
  for (size_t i = 0; i < batches.size(); ++i) {
    std::thread ahead([&] {
      if (i + 1 == batches.size()) return;
      const Bed::Query next(batches[i + 1], static_cast<int64_t>(i) + 2, 0);
      bed.tables().prefetch(next.lookup);
    });
    bed.step(static_cast<int64_t>(i) + 1, batches[i]);
    ahead.join();
    oracle.step(static_cast<int64_t>(i) + 1, batches[i]);
  }
  compare(bed.rows(), oracle.all(), "with a thread ahead");
  const tsr_kernel_stats stats = bed.stats();
  expect(stats.storage_reads > 500 && stats.storage_writes > 500, stats.storage_reads, " rows read, and ",
         stats.storage_writes, " written: too few to tell");
  expect(stats.hits > 0 && stats.hits < stats.lookups && stats.evictions > 100, "what is counted: ", stats.hits,
         " hits, ", stats.evictions, " evictions");
}
#endif

}  // namespace

int main() {
  check_changes();
  check_reads_only();
  check_admission();
  check_full_bucket();
  check_older_row();
  check_room();
  check_other_counts();
  check_refusals();
  check_estimates();
  check_clamp();
  check_evicted_between();
#ifdef TESTS_VIRTUAL_TABLES
  check_refusals_of_disk();
  check_prefetch_beside();
#else
  check_sums();
#endif
  check_seconds();
  check_pinned();
  for (const char* evict : {"lru", "lfu", "decayed"}) {
    check_moves(evict);
    check_less_room(evict);
  }
  for (const int64_t capacity : {100, 1000, 1500}) {
    for (const char* evict : {"lru", "lfu", "decayed"}) {
      check_survivors(evict, capacity, 0);
      check_survivors(evict, capacity, 9);
      if (std::string(evict) != "lru") check_survivors(evict, capacity, capacity == 1000 ? 9 : 0, true);
    }
  }
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
