// Models and their collections in tessera.h: descriptions, checkpoints, learning rates.
#include <algorithm>

#include "c/call.h"
#include "c/description.h"
#include "c/handles.h"
#include "tessera/checkpoint.h"

using namespace tessera;
using namespace tessera::c;

namespace {

// Collections that only describe their tables.
struct Described {
  Described(const Runtime& runtime, const Description& description) {
    for (const PlannerModule& module : description.modules) {
      CollectionOptions options{.tables = module.tables, .is_weighted = module.is_weighted.value_or(false)};
      options.device = kMeta;
      if (module.kind == PlannerModule::Kind::kEmbeddingBagCollection) {
        bags.push_back(std::make_unique<EmbeddingBagCollection>(runtime, std::move(options)));
        model.bag_collections.emplace_back(module.path, bags.back().get());
      } else {
        sequences.push_back(std::make_unique<EmbeddingCollection>(runtime, std::move(options)));
        model.collections.emplace_back(module.path, sequences.back().get());
      }
    }
  }
  std::vector<std::unique_ptr<EmbeddingBagCollection>> bags;
  std::vector<std::unique_ptr<EmbeddingCollection>> sequences;
  ParallelModel model;
};

Model parallel(const tsr_model_parallel_options& in, const std::shared_ptr<Session>& session) {
  // Use the group's runtime, because a caller with two runtimes may have its components in only one of them.
  const Runtime& runtime = session->opened->runtime;
  const std::shared_ptr<ProcessGroup>& group = session->group;
  need(in.model, "options->model");
  const Description description = parse_description(in.model);
  const DeviceStreamPtr device =
      open_device(runtime, in.device == nullptr ? "cpu" : in.device, group->local_rank(), description.sharded.kernel);
  const Topology topology = Topology::of(group->world_size(), group->local_world_size(), compute_device(device));
  const Planning planning = parse_planning(in.planner == nullptr ? "" : in.planner, description, topology);
  DistributedModelParallelOptions options;
  if (in.plan != nullptr)
    options.plan = ShardingPlan::from_json(in.plan);
  else if (!planning.shardings.empty())
    options.plan = requested_plan(runtime, description, planning);
  if (!options.plan) options.planner = planning.options;
  options.sharded = description.sharded;
  options.sharded.stream = device;
  Described described(runtime, description);
  for (const auto& [name, shape] : description.dense) {
    Parameter parameter{.name = name, .value = Tensor::empty(shape, DType::kFloat32)};
    std::fill_n(parameter.value.data<float>(), parameter.value.numel(), 0.0f);
    described.model.buffers.push_back(std::make_shared<Parameter>(std::move(parameter)));
  }
  std::set<std::string> weighted;
  for (const PlannerModule& module : description.modules) {
    if (module.is_weighted.value_or(false)) weighted.insert(module.path);
  }
  return {session, DistributedModelParallel(runtime, described.model, group, std::move(options)), std::move(weighted),
          device};
}

// Dense parameters belong to the caller, so there are none here.
KeyedOptimizerPtr no_dense_optimizer() {
  return std::make_shared<CombinedOptimizer>(std::vector<CombinedOptimizer::Member>{});
}

template <class T>
void add_features(const std::vector<T>& names, std::vector<std::string>& features) {
  for (const std::string& name : names) {
    if (std::find(features.begin(), features.end(), name) == features.end()) features.push_back(name);
  }
}

std::shared_ptr<const Collection> collection_of(const std::shared_ptr<Model>& model, const std::string& path) {
  auto out = std::make_shared<Collection>();
  out->model = model;
  out->weighted = model->weighted.contains(path);
  const auto all = model->parallel.sharded();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& c) { return c.first == path; });
  auto* sequences = found == all.end() ? nullptr : dynamic_cast<ShardedEmbeddingCollection*>(found->second);
  if (sequences != nullptr)
    out->sharded = sequences;
  else
    out->sharded = &model->parallel.bags(path);  // throws an error with the known paths
  const ShardedEmbeddings& any = out->any();
  const auto names = embedding_names_by_table(any.tables());
  for (uint32_t t = 0; t < names.size(); ++t) {
    add_features(any.tables()[t].feature_names, out->features);
    for (const std::string& name : names[t]) {
      const int64_t dim = any.tables()[t].embedding_dim;
      out->output_names.push_back(name);
      out->outputs.push_back({0, t, nullptr, dim, out->width});
      out->width += dim;
    }
  }
  for (size_t i = 0; i < out->outputs.size(); ++i) out->outputs[i].name = out->output_names[i].c_str();
  out->keys = any.state_dict_keys();
  out->shards = any.held_shards();
  for (const EmbeddingBagConfig& t : any.tables()) {
    if (any.optimizer_of(t.name).name.empty()) out->without_optimizer = t.name;
  }
  return out;
}

void check_table(const ShardedEmbeddings& c, const char* table) {
  std::string known;
  for (const EmbeddingBagConfig& t : c.tables()) {
    if (t.name == table) return;
    known += str_cat(known.empty() ? "" : ", ", t.name);
  }
  fail(Code::kNotFound, "there is no table \"", table, "\"; the collection has ", known);
}

}  // namespace

tsr_code tsr_model_parallel_create(const tsr_runtime* runtime, tsr_process_group* group,
                                   const tsr_model_parallel_options* options, tsr_model_parallel** model,
                                   tsr_error* err) {
  return made(model, "model", err, [&] {
    need(runtime, "runtime");
    const tsr_model_parallel_options in = copy_in(options, "options");
    const std::shared_ptr<Session> session = session_of(runtime->shared, group);
    const Collective use(*session);
    return new tsr_model_parallel{std::make_shared<Model>(parallel(in, session))};
  });
}

void tsr_model_parallel_close(tsr_model_parallel* model) { close(model); }

tsr_code tsr_model_parallel_plan(const tsr_model_parallel* model, tsr_text** plan, tsr_error* err) {
  return made(plan, "plan", err, [&] {
    need(model, "model");
    return new tsr_text{model->model->parallel.plan().json()};
  });
}

tsr_code tsr_model_parallel_save(tsr_model_parallel* model, const char* directory, const tsr_save_options* options,
                                 tsr_error* err) {
  return guarded(err, [&] {
    need(model, "model");
    need(directory, "directory");
    const tsr_save_options in = copy_if_given(options, "options");
    if (in.keep < 0) fail(Code::kInvalidArgument, "options->keep is ", in.keep, ", but must be at least 0");
    const Collective use(*model->model->session);
    save_checkpoint(directory, model->model->parallel, *no_dense_optimizer(), in.progress == nullptr ? "" : in.progress,
                    in.keep == 0 ? 2 : in.keep);
  });
}

tsr_code tsr_model_parallel_load(tsr_model_parallel* model, const char* directory, const tsr_load_options* options,
                                 tsr_text** progress, tsr_error* err) {
  return guarded(err, [&] {
    if (progress != nullptr) *progress = nullptr;
    need(model, "model");
    need(directory, "directory");
    (void)copy_if_given(options, "options");  // it has nothing but flags
    const Collective use(*model->model->session);
    std::string text = load_checkpoint(directory, model->model->parallel, *no_dense_optimizer());
    if (progress != nullptr) *progress = new tsr_text{std::move(text)};
  });
}

tsr_code tsr_model_parallel_dense(const tsr_model_parallel* model, const char* name, DLTensor* view, tsr_error* err) {
  return guarded(err, [&] {
    need(model, "model");
    need(name, "name");
    need(view, "view");
    std::string known;
    for (const ParameterPtr& parameter : model->model->parallel.buffers()) {
      if (parameter->name == name) {
        *view = parameter->value.dl();
        return;
      }
      known += str_cat(known.empty() ? "" : ", ", parameter->name);
    }
    fail(Code::kNotFound, "the model's description has no dense parameter \"", name, "\"; it has ",
         known.empty() ? "none" : known);
  });
}

tsr_code tsr_model_parallel_collection(tsr_model_parallel* model, const char* path, tsr_collection** collection,
                                       tsr_error* err) {
  return made(collection, "collection", err, [&] {
    need(model, "model");
    need(path, "path");
    const Use use(*model->model->session);
    return new tsr_collection{collection_of(model->model, path)};
  });
}

void tsr_collection_close(tsr_collection* collection) { close(collection); }

tsr_code tsr_collection_describe(const tsr_collection* collection, tsr_collection_info* info, tsr_error* err) {
  return with(collection, err, [&](const Collection& c) {
    const ShardedEmbeddings& any = c.any();
    copy_out<tsr_collection_info>(
        {0, c.bags() ? TSR_COLLECTION_BAGS : TSR_COLLECTION_SEQUENCES, static_cast<uint32_t>(any.tables().size()),
         static_cast<uint32_t>(c.features.size()), static_cast<uint32_t>(c.outputs.size()),
         static_cast<uint32_t>(c.shards.size()), c.width, any.step(), any.dropped_ids()},
        info, "info");
  });
}

tsr_code tsr_collection_get_table(const tsr_collection* collection, uint32_t i, tsr_table_info* info, tsr_error* err) {
  return guarded(err, [&] {
    need(collection, "collection");
    const Collection& c = *collection->collection;
    const EmbeddingBagConfig& t = at(c.any().tables(), i, "table", "collection");
    copy_out<tsr_table_info>({0, 0, t.name.c_str(), c.keys[i].c_str(), t.num_embeddings, t.embedding_dim}, info,
                             "info");
  });
}

tsr_code tsr_collection_get_feature(const tsr_collection* collection, uint32_t i, const char** name, tsr_error* err) {
  return guarded(err, [&] {
    need(collection, "collection");
    need(name, "name");
    *name = at(collection->collection->features, i, "feature", "collection").c_str();
  });
}

tsr_code tsr_collection_get_output(const tsr_collection* collection, uint32_t i, tsr_output_info* info,
                                   tsr_error* err) {
  return guarded(err, [&] {
    need(collection, "collection");
    copy_out(at(collection->collection->outputs, i, "output", "collection"), info, "info");
  });
}

tsr_code tsr_collection_set_learning_rate(tsr_collection* collection, const char* table, double value, tsr_error* err) {
  return with(collection, err, [&](const Collection& c) {
    if (table == nullptr) return c.any().set_learning_rate(value);
    check_table(c.any(), table);
    c.any().set_learning_rate(table, value);
  });
}

tsr_code tsr_collection_get_learning_rate(const tsr_collection* collection, const char* table, double* value,
                                          tsr_error* err) {
  return with(collection, err, [&](const Collection& c) {
    need(table, "table");
    need(value, "value");
    check_table(c.any(), table);
    *value = c.any().learning_rate(table);
  });
}

tsr_code tsr_collection_set_steps(tsr_collection* collection, int64_t steps, tsr_error* err) {
  return with(collection, err, [&](const Collection& c) {
    if (steps < 0) fail(Code::kInvalidArgument, "steps is ", steps, ", but must be at least 0");
    c.any().set_step(steps);
  });
}
