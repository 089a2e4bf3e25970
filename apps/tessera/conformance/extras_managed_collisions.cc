// Managed collisions: MCH step by step, lookups in a hash ZCH, and a bag collection whose ids pass through MCH.
#include <cstdio>

#include "conformance/extras.h"
#include "tessera/embedding_modules.h"
#include "tessera/sdk/managed_collisions.h"

namespace tessera::cli {
namespace {

std::span<const int64_t> ids_of(const Tensor& tensor) { return tensor.span<int64_t>(); }

sdk::MchOptions mch_options(const json& given) {
  sdk::MchOptions out;
  const std::string policy = given.at("policy").get<std::string>(), threshold = given.value("threshold", "");
  out.policy = policy == "lfu"   ? sdk::MchPolicy::kLfu
               : policy == "lru" ? sdk::MchPolicy::kLru
                                 : sdk::MchPolicy::kDistanceLfu;
  if (threshold == "average") out.filter = sdk::MchFilter::kAverage;
  if (threshold == "dynamic") out.filter = sdk::MchFilter::kDynamic;
  out.threshold_skew_multiplier = given.value("threshold_skew_multiplier", out.threshold_skew_multiplier);
  out.decay_exponent = given.value("decay_exponent", out.decay_exponent);
  out.zch_size = given.at("zch_size").get<int64_t>();
  out.eviction_interval = given.at("eviction_interval").get<int64_t>();
  out.output_global_offset = given.value("output_global_offset", int64_t{0});
  return out;
}

Tensor remapped(const sdk::Mch& mch, const Tensor& ids) {
  Tensor out = Tensor::empty({ids.numel()}, DType::kInt64);
  mch.remap(ids_of(ids), out.span<int64_t>());
  return out;
}

template <class Member>
Tensor column(const sdk::Mch& mch, Member member) {
  std::vector<int64_t> out;
  for (const sdk::Mch::Slot& slot : mch.slots()) out.push_back(slot.*member);
  return Tensor::from(out);
}

void mch_op(CaseContext& c) {
  sdk::Mch mch(mch_options(c.given));
  const json &steps = c.given.at("steps"), &want = c.expect.at("steps");
  for (size_t s = 0; s < steps.size(); ++s) {
    std::vector<int64_t> all;
    for (const auto& [feature, ids] : steps[s].items()) {
      const Tensor values = tensor_from(ids);
      all.insert(all.end(), ids_of(values).begin(), ids_of(values).end());
    }
    const bool evicts = mch.profile(all);
    const auto field = [&](const char* name) { return str_cat("steps[", s, "].", name); };
    const json& expected = want.at(s);
    for (const auto& [feature, ids] : steps[s].items())
      c.check.tensor(field("remapped"), expected.at("remapped").at(feature), remapped(mch, tensor_from(ids)));
    c.check.equal(field("evicts"), !expected.at("evicted_output_ids").is_null(), evicts);
    if (evicts) {
      const std::vector<int64_t> rows(mch.evicted_rows().begin(), mch.evicted_rows().end());
      c.check.tensor(field("evicted_output_ids"), expected["evicted_output_ids"], Tensor::from(rows));
    }
    c.check.tensor(field("sorted_raw_ids"), expected.at("sorted_raw_ids"), column(mch, &sdk::Mch::Slot::raw));
    c.check.tensor(field("remapped_ids_mapping"), expected.at("remapped_ids_mapping"),
                   column(mch, &sdk::Mch::Slot::row));
    c.check.equal(field("open_slots"), expected.at("open_slots"), mch.open_slots());
    if (expected.contains("meta_counts"))
      c.check.tensor(field("meta_counts"), expected["meta_counts"], column(mch, &sdk::Mch::Slot::count));
    if (expected.contains("meta_last_access_iter"))
      c.check.tensor(field("meta_last_access_iter"), expected["meta_last_access_iter"],
                     column(mch, &sdk::Mch::Slot::last));
  }
  if (c.given.contains("eval_ids"))
    c.check.tensor("eval_remapped", c.expect.at("eval_remapped"), remapped(mch, tensor_from(c.given["eval_ids"])));
}

void mc_ebc_op(CaseContext& c) {
  sdk::Mch mch(mch_options(c.given));
  const json &steps = c.given.at("steps"), &want = c.expect.at("steps");
  const Tensor weight = tensor_from(c.given.at("weight"));
  EmbeddingBagConfig table{.name = "t", .num_embeddings = weight.size(0), .embedding_dim = weight.size(1)};
  table.feature_names = steps.at(0).at("keys").get<std::vector<std::string>>();
  EmbeddingBagCollection bags(c.runtime, {.tables = {table}, .kernel = c.kernel});
  bags.set_weight("t", weight);
  for (size_t s = 0; s < steps.size(); ++s) {
    const auto field = [&](const char* name) { return str_cat("steps[", s, "].", name); };
    const Tensor values = tensor_from(steps[s].at("values")), lengths = tensor_from(steps[s].at("lengths"));
    mch.profile(ids_of(values));
    const Tensor rows = remapped(mch, values);
    c.check.tensor(field("remapped_values"), want.at(s).at("remapped_values"), rows);
    c.check.tensor(field("remapped_lengths"), want[s].at("remapped_lengths"), lengths);
    const KeyedTensor pooled = bags.forward(KeyedJaggedTensor::from_lengths_sync(table.feature_names, rows, lengths));
    c.check.equal(field("pooled_keys"), want[s].at("pooled_keys"), json(pooled.keys()));
    c.check.tensor(field("pooled"), want[s].at("pooled"), pooled.values());
    c.check.tensor(field("weight_after"), want[s].at("weight_after"), bags.weight("t"));
  }
}

void check_slots(CaseContext& c, const sdk::HashZchOptions& options) {
  const Tensor identities = tensor_from(c.given.at("identities")), ids = tensor_from(c.given.at("input"));
  std::vector<int64_t> slots;
  for (const int64_t id : ids_of(ids)) slots.push_back(sdk::zero_collision_slot(ids_of(identities), id, options));
  c.check.tensor("output", c.expect.at("output"), Tensor::from(slots));
}

void zero_collision_hash_op(CaseContext& c) {
  check_slots(c, {.max_probe = c.given.at("max_probe").get<int64_t>(),
                  .disable_fallback = c.given.at("disable_fallback").get<bool>()});
}

void hash_zch_op(CaseContext& c) {
  if (c.given.at("mode") == "train") throw SkipCase{"hash ZCH is looked up here, and not trained; upstream, on GPUs"};
  check_slots(c, {.max_probe = c.given.at("max_probe").get<int64_t>(),
                  .num_buckets = c.given.at("total_num_buckets").get<int64_t>()});
}

void murmur_op(CaseContext& c) {
  const Tensor ids = tensor_from(c.given.at("ids"));
  json hashes = json::array();
  std::vector<int64_t> slots;
  for (const int64_t id : ids_of(ids)) {
    const uint64_t hash = sdk::murmur_hash3_2x64(static_cast<uint64_t>(id), c.given.at("y").get<uint64_t>(),
                                                 c.given.at("seed").get<uint64_t>());
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
    hashes.push_back(text);
    slots.push_back(static_cast<int64_t>(hash % (1u << 20)));
  }
  c.check.equal("hash_as_hex", c.expect.at("hash_as_hex"), hashes);
  c.check.tensor("slot_in_table_of_2_20", c.expect.at("slot_in_table_of_2_20"), Tensor::from(slots));
}

}  // namespace

void add_managed_collisions(OpTable& ops) {
  ops["extras/MCHManagedCollisionModule"] = mch_op;
  ops["extras/ManagedCollisionEmbeddingBagCollection"] = mc_ebc_op;
  ops["extras/HashZchManagedCollisionModule"] = hash_zch_op;
  ops["zero_collision_hash"] = zero_collision_hash_op;
  ops["murmur_hash3_2x64"] = murmur_op;
}

}  // namespace tessera::cli
