#include "tessera/step_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "planner/step_costs.h"

namespace tessera {

namespace {

using Combine = ParameterSharding::Combine;

constexpr double kHeaderBytes = 40;  // of a step's first exchange, to each peer
// An id in the batch and on its way; as received, and sorted with its position.
constexpr double kHomeBytesPerId = 8 + 8, kOwnerBytesPerId = 8 + 16;

// What crosses in one exchange: the largest rank's bytes, by link.
struct Crossing {
  std::vector<double> in_host, across;  // sent, by rank
};

struct RankTotals {
  StageWork route, unpack, combine, split, replica;
  double lookup = 0, update = 0, replica_lookup = 0, replica_update = 0;
  std::set<std::string> groups, replica_groups;  // kernel instances
  ReuseModel reuse;
};

// One table on its way through the model.
struct PlacedTable {
  TableLoad load;
  const ParameterSharding* sharding;
};

StageWork& operator+=(StageWork& a, const StageWork& b) {
  a.calls += b.calls;
  a.runs += b.runs;
  a.bags += b.bags;
  a.ids += b.ids;
  a.cut_ids += b.cut_ids;
  a.bytes += b.bytes;
  return a;
}

StageWork operator*(double part, StageWork work) {
  for (double* x : {&work.calls, &work.runs, &work.bags, &work.ids, &work.cut_ids, &work.bytes}) *x *= part;
  return work;
}

class StepModel {
 public:
  StepModel(const Runtime& runtime, const PlannerOptions& options, const DenseWork& dense)
      : topology_(options.topology),
        batch_(static_cast<double>(options.batch_size)),
        machine_(options.machine ? *options.machine : Machine::typical(options.topology.compute_device)),
        costs_(runtime, options.kernel, machine_),
        dense_(dense),
        ranks_(static_cast<size_t>(options.topology.world_size)) {
    machine_.check_fits(topology_.world_size, topology_.local_world_size, topology_.compute_device);
    for (Crossing* c : {&ids_, &rows_, &marks_}) {
      c->in_host.resize(ranks_.size());
      c->across.resize(ranks_.size());
    }
  }

  void add(const PlannerModule& module, const EmbeddingModuleShardingPlan& plan,
           const std::map<std::string, ParameterConstraints>& constraints) {
    for (const EmbeddingBagConfig& table : module.tables) {
      tables_.push_back(table);
      if (module.kind == PlannerModule::Kind::kEmbeddingCollection) tables_.back().pooling = PoolingType::kNone;
      const auto known = constraints.find(table.name);
      constraints_.push_back(known == constraints.end() ? ParameterConstraints{} : known->second);
      if (!plan.contains(table.name)) fail(Code::kInvalidArgument, "the plan has no table \"", table.name, "\"");
      shardings_.push_back(&plan.at(table.name));
    }
  }

  StepPrediction run() {
    StepPrediction out;
    for (size_t t = 0; t < tables_.size(); ++t) {
      placed_.push_back({table_load(tables_[t], constraints_[t], batch_), shardings_[t]});
    }
    for (const PlacedTable& t : placed_) fill_reuse(t);
    for (RankTotals& r : ranks_) r.reuse.add_every_step(dense_bytes());
    for (const PlacedTable& t : placed_) out.tables.push_back(place(t));
    fill_stages(out);
    out.kernel = costs_.kernels().kernel();
    return out;
  }

 private:
  double world() const { return topology_.world_size; }
  size_t host_of(size_t rank) const { return rank / static_cast<size_t>(topology_.local_world_size); }

  // Which part of what a rank's samples get comes from itself and stays where its lookup writes it, by rank: one of the
  // first two pieces of each block of columns (LaneMap::keep_own).
  std::vector<double> kept_shares(const PlacedTable& t) const {
    std::vector<double> shares(ranks_.size());
    if (topology_.compute_device != "cpu" || t.load.table->pooling != PoolingType::kSum) return shares;
    std::map<int64_t, std::vector<const ShardMetadata*>> blocks;  // by first column
    double pieces = 0;
    for (const ShardMetadata& s : t.sharding->shards) {
      if (s.rows == 0) continue;
      blocks[s.col].push_back(&s);
      ++pieces;
    }
    for (auto& [col, block] : blocks) {
      std::stable_sort(block.begin(), block.end(), [](const auto* a, const auto* b) { return a->row < b->row; });
      shares.at(static_cast<size_t>(block[0]->rank)) += 1 / pieces;
      if (block.size() > 1 && block[1]->rank != block[0]->rank)
        shares.at(static_cast<size_t>(block[1]->rank)) += 1 / pieces;
    }
    return shares;
  }

  double row_share(const PlacedTable& t, const ShardMetadata& s) const {
    return static_cast<double>(s.rows) / static_cast<double>(std::max<int64_t>(1, t.load.work.rows));
  }

  void fill_reuse(const PlacedTable& t) {
    const bool replicas = t.sharding->combine == Combine::kReplica;
    const double homes = replicas ? 1 : world();
    for (const ShardMetadata& s : t.sharding->shards) {
      ReuseModel& reuse = ranks_.at(static_cast<size_t>(s.rank)).reuse;
      const double width = static_cast<double>(s.cols * t.load.work.element_bytes);
      for (const PopularityBand& band : t.load.bands) {
        reuse.add_rows(band.rows * row_share(t, s), width, t.load.rate(band, homes));
      }
      // The gradients of a replica's rows: as the kernel hands them out, and as they are reduced.
      if (replicas) reuse.add_every_step(costs_.replica_marks(t.load) + 2 * costs_.replica_bytes(t.load, world()));
      reuse.add_every_step(homes * row_share(t, s) *
                           (t.load.work.ids * kOwnerBytesPerId + 2 * t.load.work.outputs * width));
    }
    for (RankTotals& r : ranks_) {
      r.reuse.add_every_step(t.load.work.ids * kHomeBytesPerId + 4 * t.load.work.outputs * t.load.row_bytes());
    }
  }

  // Parameters with gradients and states, activations with theirs.
  double dense_bytes() const {
    double bytes = 12.0 * static_cast<double>(dense_.parameters());
    for (const auto& [in, out] : dense_.layers) bytes += batch_ * static_cast<double>(in + out) * 8;
    return bytes + batch_ * static_cast<double>(dense_.vectors * dense_.vectors) * 4;
  }

  TablePrediction place(const PlacedTable& t) {
    TablePrediction out;
    out.name = t.load.table->name;
    out.lookup.resize(ranks_.size());
    out.update.resize(ranks_.size());
    out.bytes.resize(ranks_.size());
    if (t.sharding->combine == Combine::kReplica) {
      for (const ShardMetadata& s : t.sharding->shards) place_replica(t, s, out);
      return out;
    }
    std::set<int64_t> rows, cols;
    for (const ShardMetadata& s : t.sharding->shards) {
      if (s.rows == 0) continue;
      rows.insert(t.sharding->routed ? static_cast<int64_t>(rows.size()) : s.row);
      cols.insert(s.col);
      place_piece(t, s, out);
    }
    const HomeWork home = costs_.home(t.load, static_cast<double>(rows.size()), static_cast<double>(cols.size()));
    const std::vector<double> kept = kept_shares(t);
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      RankTotals& r = ranks_[rank];
      const StageWork moved = (1 - kept[rank]) * home.rows;
      r.route += home.route;
      r.combine += moved;
      r.split += moved;
    }
    return out;
  }

  void place_replica(const PlacedTable& t, const ShardMetadata& s, TablePrediction& out) {
    const auto rank = static_cast<size_t>(s.rank);
    RankTotals& r = ranks_[rank];
    const PieceCost cost = costs_.piece(t.load, {1, s.cols, t.sharding->compute_kernel}, 1, r.reuse);
    const StageWork work = costs_.replica(t.load, world());
    // The lookup writes to the output itself.
    const double combine =
        machine_.combine.of({0, t.load.features, t.load.work.outputs, 0, 0, t.load.work.outputs * t.load.row_bytes()});
    r.replica_lookup += cost.forward + combine;
    r.replica_update += cost.backward;
    r.replica += work;
    r.route.runs += t.load.features;  // ids are checked, and stay
    r.route.bags += t.load.work.outputs;
    r.route.ids += t.load.work.ids;
    r.replica_groups.insert(group_of(t));
    const double marks = costs_.replica_marks(t.load), reduced = costs_.replica_bytes(t.load, world());
    if (rank == 0) reduced_bytes_ += reduced;
    marks_.in_host[rank] += marks * (topology_.local_world_size - 1);
    marks_.across[rank] += marks * (world() - topology_.local_world_size);
    out.lookup[rank] += cost.forward;
    out.update[rank] += cost.backward + machine_.replica.of(work);
    if (ranks_.size() > 1) out.bytes[rank] += marks * (world() - 1) + 2 * reduced * (world() - 1) / world();
  }

  void place_piece(const PlacedTable& t, const ShardMetadata& s, TablePrediction& out) {
    const auto owner = static_cast<size_t>(s.rank);
    RankTotals& r = ranks_[owner];
    const PieceShape shape{row_share(t, s), s.cols, t.sharding->compute_kernel};
    const PieceCost cost = costs_.piece(t.load, shape, world(), r.reuse);
    r.unpack += cost.unpack;
    r.lookup += cost.forward;
    r.update += cost.backward;
    r.groups.insert(group_of(t));
    out.lookup[owner] += cost.forward;
    out.update[owner] += cost.backward;
    const double local = topology_.local_world_size;
    const bool summed = t.sharding->combine == Combine::kHostSum && topology_.hosts() > 1 && t.load.work.pooled;
    for (size_t home = 0; home < ranks_.size(); ++home) {
      if (home == owner) continue;
      const bool near = host_of(home) == host_of(owner);
      (near ? ids_.in_host : ids_.across)[home] += cost.ids_bytes;
      out.bytes[owner] += cost.ids_bytes;
      if (!near && summed) continue;
      (near ? rows_.in_host : rows_.across)[owner] += cost.rows_bytes;
      out.bytes[owner] += 2 * cost.rows_bytes;
    }
    if (!summed) return;
    // Rows for homes elsewhere go to a rank of this host, and one row per bag from there.
    const double elsewhere = world() - local;
    rows_.in_host[owner] += cost.rows_bytes * elsewhere * (local - 1) / local;
    const double bags = std::min(t.load.work.outputs, cost.full_bags * local);
    const double crossing = bags * static_cast<double>(s.cols) * 4 * elsewhere / local;
    rows_.across[owner] += crossing;
    out.bytes[owner] += 2 * (crossing + cost.rows_bytes * elsewhere * (local - 1) / local);
  }

  static std::string group_of(const PlacedTable& t) {
    const EmbeddingBagConfig& table = *t.load.table;
    return cat(to_string(table.data_type), ' ', table.optimizer.name, ' ', table.optimizer.options, ' ',
               table.optimizer.max_gradient, ' ', t.sharding->compute_kernel);
  }

  // All ranks exchange; the one that sends or receives most decides.
  double exchange(const Crossing& sent) const {
    if (ranks_.size() == 1) return 0;
    const auto most = [](const std::vector<double>& bytes) { return *std::max_element(bytes.begin(), bytes.end()); };
    const int local = topology_.local_world_size;
    double seconds = 0;
    if (local > 1) seconds += machine_.intra_host->all_to_all_at(local, most(sent.in_host));
    if (topology_.hosts() > 1) {
      seconds += machine_.inter_host->all_to_all_at(topology_.world_size - local + 1, most(sent.across));
    }
    return seconds;
  }

  double wait() const {
    if (ranks_.size() == 1) return 0;
    return topology_.hosts() > 1 ? machine_.inter_host->wait : machine_.intra_host->wait;
  }

  double all_reduce(double bytes) const {
    if (ranks_.size() == 1 || bytes <= 0) return 0;
    const LinkFigures& link = topology_.hosts() > 1 ? *machine_.inter_host : *machine_.intra_host;
    return link.all_reduce_at(topology_.world_size, bytes);
  }

  // Forward, backward, all-reduce, update.
  struct Dense {
    double forward = 0, backward = 0, reduce = 0, update = 0;
  };
  Dense dense() const {
    Dense out;
    if (dense_.empty()) return out;
    const DenseFigures& f = machine_.dense;
    const StageWork beside = dense_.stage_work(batch_);
    out.forward = dense_.layer_seconds(f.layer_forward, batch_) +
                  dense_.interaction_seconds(f.interaction_forward, batch_) + f.forward.of(beside);
    out.backward = dense_.layer_seconds(f.layer_backward, batch_) +
                   dense_.interaction_seconds(f.interaction_backward, batch_) + f.backward.of(beside);
    const double bytes = 4 * static_cast<double>(dense_.parameters());
    const double buckets = std::max(1.0, std::round(bytes / dense_.bucket_bytes));
    out.reduce = buckets * all_reduce(bytes / buckets);
    out.update = f.update.of({1, 2 * static_cast<double>(dense_.layers.size()), 0, 0, 0, bytes});
    return out;
  }

  void fill_stages(StepPrediction& out) {
    const Dense dense_part = dense();
    Crossing header;
    header.in_host.assign(ranks_.size(), kHeaderBytes * (topology_.local_world_size - 1));
    header.across.assign(ranks_.size(), kHeaderBytes * (world() - topology_.local_world_size));
    const double ids = exchange(header) + exchange(ids_), rows = exchange(rows_),
                 reduce = reduced_bytes_ > 0 ? exchange(marks_) + all_reduce(reduced_bytes_) : 0;
    double routing = 0, looking = 0, middle = 0, updating = 0;
    for (RankTotals& r : ranks_) {
      r.route.calls = r.unpack.calls = r.combine.calls = r.split.calls = 1;
      r.replica.calls = r.replica.runs > 0 ? 1 : 0;
      const auto calls = static_cast<double>(r.groups.size()), replicas = static_cast<double>(r.replica_groups.size());
      const KernelEstimates& k = costs_.kernels();
      const double route = machine_.route.of(r.route), unpack = machine_.unpack.of(r.unpack);
      const double lookup = r.lookup + r.replica_lookup + (calls + replicas) * k.call_forward();
      const double combine = machine_.combine.of(r.combine), split = machine_.split.of(r.split);
      const double update = r.update + calls * k.call_backward();
      const double replica = r.replica_update + replicas * k.call_backward() + machine_.replica.of(r.replica);
      out.stages.push_back({{"route", route},
                            {"exchange ids", ids + unpack},
                            {"lookup", lookup},
                            {"exchange rows", rows},
                            {"combine", combine},
                            {"dense forward", dense_part.forward},
                            {"dense backward", dense_part.backward},
                            {"split", split},
                            {"exchange gradients", rows},
                            {"table update", update},
                            {"data parallel", replica + reduce},
                            {"dense all-reduce", dense_part.reduce},
                            {"dense update", dense_part.update}});
      routing = std::max(routing, route);
      looking = std::max(looking, unpack + lookup);
      middle = std::max(middle, combine + split);
      updating = std::max(updating, update + replica);
    }
    const double work =
        routing + looking + middle + updating + dense_part.forward + dense_part.backward + dense_part.update;
    out.exchanges = ids + 2 * rows + reduce + dense_part.reduce;
    out.waiting = wait() * work;
    out.seconds = work + out.exchanges + out.waiting;
  }

  const Topology topology_;
  double batch_;
  Machine machine_;
  StepCosts costs_;
  DenseWork dense_;
  std::vector<RankTotals> ranks_;
  std::vector<EmbeddingBagConfig> tables_;
  std::vector<ParameterConstraints> constraints_;
  std::vector<const ParameterSharding*> shardings_;
  std::vector<PlacedTable> placed_;
  Crossing ids_, rows_;
  Crossing marks_;            // which rows of replicas a rank had
  double reduced_bytes_ = 0;  // of all replicas' gradients
};

}  // namespace

int64_t DenseWork::parameters() const {
  int64_t n = 0;
  for (const auto& [in, out] : layers) n += in * out + out;
  return n;
}

double DenseWork::layer_seconds(const Curve& curve, double batch) const {
  double seconds = 0;
  for (const auto& [in, out] : layers) seconds += curve.at(2 * batch * static_cast<double>(in * out));
  return seconds;
}

double DenseWork::interaction_seconds(const Curve& curve, double batch) const {
  return vectors > 0 ? curve.at(batch * static_cast<double>(vectors * vectors * dim)) : 0;
}

StageWork DenseWork::stage_work(double batch) const {
  StageWork work;
  work.calls = empty() ? 0 : 1;
  work.runs = static_cast<double>(layers.size()) + (vectors > 0 ? 1 : 0);
  work.bags = batch;
  work.ids = batch * static_cast<double>(vectors * vectors);
  auto values = static_cast<double>(vectors * dim + vectors * (vectors - 1) / 2);
  for (const auto& [in, out] : layers) values += static_cast<double>(in + out);
  work.bytes = 4 * batch * values;
  return work;
}

DenseWork dlrm_dense_work(int64_t dense_inputs, int64_t num_embeddings, int64_t embedding_dim,
                          const std::vector<int64_t>& bottom_mlp, const std::vector<int64_t>& top_mlp) {
  DenseWork out;
  const auto add = [&](int64_t in, const std::vector<int64_t>& sizes) {
    for (const int64_t width : sizes) {
      out.layers.emplace_back(in, width);
      in = width;
    }
  };
  out.vectors = num_embeddings + 1;
  out.dim = embedding_dim;
  add(dense_inputs, bottom_mlp);
  add(embedding_dim + out.vectors * (out.vectors - 1) / 2, top_mlp);
  return out;
}

StepPrediction predict_step(const Runtime& runtime, const PlannerOptions& options,
                            const std::vector<PlannerModule>& modules, const ShardingPlan& plan,
                            const DenseWork& dense) {
  options.topology.validate();
  if (plan.world_size != options.topology.world_size) {
    fail(Code::kInvalidArgument, "the plan is for ", plan.world_size, " ranks and the topology has ",
         options.topology.world_size);
  }
  StepModel model(runtime, options, dense);
  for (const PlannerModule& module : modules) {
    if (module.kind != PlannerModule::Kind::kDense) model.add(module, plan.at(module.path), options.constraints);
  }
  return model.run();
}

}  // namespace tessera
