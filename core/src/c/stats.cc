// Counters of a collection in tessera.h.
#include "c/call.h"
#include "c/handles.h"
#include "config/json.h"
#include "tessera/step_figures.h"

using namespace tessera;
using namespace tessera::c;

namespace {

using Json = nlohmann::ordered_json;

Json stages_of(const StageTimes& times) {
  Json out = Json::object();
  for (const auto& [name, seconds] :
       std::initializer_list<std::pair<const char*, double>>{{"route", times.route},
                                                             {"exchange ids", times.exchange_ids},
                                                             {"lookup", times.lookup},
                                                             {"exchange rows", times.exchange_rows},
                                                             {"combine", times.combine},
                                                             {"split", times.split},
                                                             {"exchange gradients", times.exchange_gradients},
                                                             {"table update", times.update},
                                                             {"data parallel", times.data_parallel}}) {
    out[name] = seconds;
  }
  return out;
}

Json bytes_of(const ExchangeBytes<int64_t>& sent) {
  Json out = Json::object();
  for (const auto& [name, bytes] : std::initializer_list<std::pair<const char*, const HostBytes<int64_t>&>>{
           {"ids", sent.ids},
           {"rows", sent.rows},
           {"gradients", sent.gradients},
           {"unused_inline", sent.unused_inline}}) {
    out[name] = {{"in_host", bytes.in_host}, {"across_hosts", bytes.across_hosts}};
  }
  return out;
}

// Statistics of this rank's shards, by table.
Json tables_of(const Collection& c) {
  Json out = Json::object();
  for (const EmbeddingBagConfig& table : c.any().tables()) {
    uint64_t weights = 0, states = 0, lookups = 0, rows = 0;
    for (const HeldShard& shard : c.shards) {
      if (shard.table != table.name) continue;
      const tsr_kernel_stats s = c.any().kernel_stats(shard);
      weights += s.weight_bytes;
      states += s.state_bytes;
      lookups += s.lookups;
      rows += s.rows_in_use;
    }
    out[table.name] = {{"weight_bytes", weights}, {"state_bytes", states}, {"lookups", lookups}, {"rows", rows}};
  }
  return out;
}

}  // namespace

tsr_code tsr_collection_stats(tsr_collection* collection, int32_t restart, tsr_text** stats, tsr_error* err) {
  return made(stats, "stats", err, [&] {
    need(collection, "collection");
    const Collection& c = *collection->collection;
    const Use use(c.session());
    const ProcessGroup& group = c.any().group();
    const Json out = {{"rank", group.rank()},
                      {"world_size", group.world_size()},
                      {"updates", c.any().step()},
                      {"dropped_ids", c.any().dropped_ids()},
                      {"steps", c.any().stage_times().steps},
                      {"stages", stages_of(c.any().stage_times())},
                      {"bytes_sent", bytes_of(c.any().bytes_sent())},
                      {"tables", tables_of(c)}};
    auto text = std::make_unique<tsr_text>(tsr_text{out.dump()});
    if (restart != 0) c.any().reset_stage_times();
    return text.release();
  });
}
