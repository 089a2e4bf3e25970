#include "planner/table_json.h"

#include <algorithm>

namespace tessera {

OptimizerSpec optimizer_from(const config::JsonObject& object) {
  OptimizerSpec out{.name = object.get<std::string>("name")};
  object.read("max_gradient", out.max_gradient);
  nlohmann::ordered_json options = object.value();
  options.erase("name");
  options.erase("max_gradient");
  out.options = options.dump();
  return out;
}

EmbeddingBagConfig table_from(const config::JsonObject& object, ParameterConstraints& c) {
  object.only({"name",        "num_embeddings",  "embedding_dim",  "feature_names",   "data_type",       "pooling",
               "init_range",  "optimizer",       "sharding_types", "compute_kernels", "min_partition",   "max_shards",
               "ranks",       "forbidden_ranks", "keep_together",  "keep_apart",      "pooling_factors", "num_poolings",
               "batch_sizes", "is_weighted",     "zipf_exponent",  "any_id",          "use_index_dedup"});
  EmbeddingBagConfig table;
  object.read("name", table.name);
  object.read("num_embeddings", table.num_embeddings);
  object.read("embedding_dim", table.embedding_dim);
  object.read("any_id", table.any_id);
  object.read("use_index_dedup", table.use_index_dedup);
  object.read("feature_names", table.feature_names);
  table.data_type = dtype_from(object.get<std::string>("data_type", "float32"));
  table.pooling = pooling_from(object.get<std::string>("pooling", "sum"));
  object.read("init_range", table.init_range);
  if (object.has("optimizer")) table.optimizer = optimizer_from(object.object("optimizer"));
  object.read("sharding_types", c.sharding_types);
  object.read("compute_kernels", c.compute_kernels);
  object.read("min_partition", c.min_partition);
  object.read("max_shards", c.max_shards);
  object.read("ranks", c.ranks);
  object.read("forbidden_ranks", c.forbidden_ranks);
  object.read("keep_together", c.keep_together);
  object.read("keep_apart", c.keep_apart);
  object.read("pooling_factors", c.pooling_factors);
  object.read("num_poolings", c.num_poolings);
  object.read("batch_sizes", c.batch_sizes);
  object.read("is_weighted", c.is_weighted);
  object.read("zipf_exponent", c.zipf_exponent);
  const size_t features = std::max<size_t>(1, table.feature_names.size());
  if (c.pooling_factors.size() > 1 && c.pooling_factors.size() != features)
    fail(Code::kInvalidArgument, "table \"", table.name, "\": pooling_factors has ", c.pooling_factors.size(),
         " numbers for ", features, features == 1 ? " feature" : " features", "; give one for each or one for all");
  return table;
}

}  // namespace tessera
