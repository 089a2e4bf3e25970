#include "tessera/step_figures.h"

#include <algorithm>
#include <map>
#include <utility>

#include "planner/dense_work.h"
#include "planner/exchange_model.h"
#include "planner/figures.h"
#include "planner/step_costs.h"
#include "wiring/expected_step.h"
#include "wiring/local_shards.h"

namespace tessera {

namespace {

using Combine = ParameterSharding::Combine;

// A home has an id in the batch and in the payload; an owner has it as received, and sorted with its position.
constexpr double kHomeBytesPerId = 8 + 8, kOwnerBytesPerId = 8 + 16;

struct RankTotals {
  RankWork work;
  double lookup = 0, update = 0, replicated_lookup = 0, replicated_update = 0;
  double calls = 0, replicated_calls = 0;  // calls of kernel instances
  ReuseModel reuse;
};

// One table, with its load and its sharding.
struct PlacedTable {
  TableLoad load;
  const ParameterSharding* sharding;
  size_t prediction;  // index into StepPrediction::tables
};

// A collection, which has kernel instances and exchanges of its own.
struct Collection {
  std::vector<EmbeddingBagConfig> tables;
  std::vector<ParameterConstraints> constraints;
  const EmbeddingModuleShardingPlan* plan = nullptr;
  bool sequence = false;
  std::vector<PlacedTable> placed;
  Crossing ids, rows, gradients;
  Crossing marks;            // bits that say which replicated rows a rank had
  double reduced_bytes = 0;  // bytes of the gradients of all replicated rows
};

class StepModel {
 public:
  StepModel(const Runtime& runtime, const PlannerOptions& options, const DenseWork& dense)
      : topology_(options.topology),
        batch_(static_cast<double>(options.batch_size)),
        wire_(options.wire),
        machine_(figures_for(options)),
        exchanges_(topology_, machine_, options.joins),
        kernels_(runtime, options.kernel, options.topology),
        costs_(kernels_, machine_),
        dense_(dense),
        ranks_(static_cast<size_t>(options.topology.world_size)) {}

  void add(const PlannerModule& module, const EmbeddingModuleShardingPlan& plan,
           const std::map<std::string, ParameterConstraints>& constraints) {
    Collection& c = collections_.emplace_back();
    c.plan = &plan;
    c.sequence = module.kind == PlannerModule::Kind::kEmbeddingCollection;
    for (const EmbeddingBagConfig& table : module.tables) {
      EmbeddingBagConfig& known = c.tables.emplace_back(table);
      if (c.sequence) known.pooling = PoolingType::kNone;
      if (known.feature_names.empty()) known.feature_names = {known.name};
      const auto found = constraints.find(table.name);
      c.constraints.push_back(found == constraints.end() ? ParameterConstraints{} : found->second);
      if (!plan.contains(table.name)) fail(Code::kInvalidArgument, "the plan has no table \"", table.name, "\"");
    }
    for (Crossing* crossing : {&c.ids, &c.rows, &c.gradients, &c.marks}) {
      crossing->in_host.resize(ranks_.size());
      crossing->across.resize(ranks_.size());
      crossing->from_across.resize(ranks_.size());
    }
  }

  StepPrediction run() {
    StepPrediction out;
    for (Collection& c : collections_) {
      for (size_t t = 0; t < c.tables.size(); ++t) {
        const TableLoad load = table_load(c.tables[t], c.constraints[t], batch_);
        c.placed.push_back({load, &c.plan->at(c.tables[t].name), out.tables.size()});
        TablePrediction& table = out.tables.emplace_back();
        table.name = c.tables[t].name;
        for (std::vector<double>* of : {&table.lookup, &table.update, &table.reads, &table.bytes})
          of->resize(ranks_.size());
        fill_reuse(c.placed.back());
      }
    }
    for (RankTotals& r : ranks_) r.reuse.add_every_step(dense_bytes());
    for (Collection& c : collections_) {
      for (const PlacedTable& t : c.placed) place(t, c, out.tables[t.prediction]);
      count_calls(c);
      walk(c, out.tables);
    }
    fill_stages(out);
    if (kernels_.estimator() != nullptr) out.kernel = kernels_.estimator()->id();
    return out;
  }

 private:
  double world() const { return topology_.world_size; }

  double row_share(const PlacedTable& t, const ShardMetadata& s) const {
    return static_cast<double>(s.rows) / static_cast<double>(std::max<int64_t>(1, t.load.work.rows));
  }

  const ComputeKernel& kernel_of(const PlacedTable& t) {
    return kernels_.named(*t.load.table, t.sharding->compute_kernel);
  }

  void fill_reuse(const PlacedTable& t) {
    for (size_t i = 0; i < t.sharding->shards.size(); ++i) {
      const ShardMetadata& s = t.sharding->shards[i];
      const bool replicated = t.sharding->is_replicated(i);
      const double homes = replicated ? 1 : world();
      ReuseModel& reuse = ranks_.at(static_cast<size_t>(s.rank)).reuse;
      const double width = static_cast<double>(s.cols * t.load.work.element_bytes);
      for (const PopularityBand& band : t.load.bands) {
        reuse.add_rows(band.rows * row_share(t, s), width, t.load.rate(band, homes));
      }
      // Gradients of replicated rows are in memory twice: as the kernel hands them out, and as they are reduced.
      if (replicated)
        reuse.add_every_step(costs_.data_parallel_marks(t.load, row_share(t, s)) +
                             2 * costs_.data_parallel_bytes(t.load, row_share(t, s), world()));
      reuse.add_every_step(homes * row_share(t, s) *
                           (t.load.work.ids * kOwnerBytesPerId + 2 * t.load.work.outputs * width));
    }
    for (RankTotals& r : ranks_) {
      r.reuse.add_every_step(t.load.work.ids * kHomeBytesPerId + 4 * t.load.work.outputs * t.load.row_bytes());
    }
  }

  // Bytes of parameters, their gradients and states, and of activations and their gradients.
  double dense_bytes() const {
    double bytes = 12.0 * static_cast<double>(dense_.parameters());
    for (const auto& [in, out] : dense_.layers) bytes += batch_ * static_cast<double>(in + out) * 8;
    return bytes + batch_ * static_cast<double>(dense_.vectors * dense_.vectors) * 4;
  }

  // Adds the costs of the table's kernels on the ranks that have its shards.
  void place(const PlacedTable& t, Collection& c, TablePrediction& out) {
    for (size_t i = 0; i < t.sharding->shards.size(); ++i) {
      const ShardMetadata& s = t.sharding->shards[i];
      if (t.sharding->is_replicated(i)) {
        place_replicated(t, s, c, out);
        continue;
      }
      if (s.rows == 0) continue;
      const auto owner = static_cast<size_t>(s.rank);
      RankTotals& r = ranks_.at(owner);
      const PieceCost cost = costs_.piece(t.load, {row_share(t, s), s.cols, kernel_of(t)}, world(), r.reuse);
      r.lookup += cost.forward;
      r.update += cost.backward;
      out.lookup[owner] += cost.forward;
      out.update[owner] += cost.backward;
      out.reads[owner] += cost.storage_reads;
    }
  }

  void place_replicated(const PlacedTable& t, const ShardMetadata& s, Collection& c, TablePrediction& out) {
    const auto rank = static_cast<size_t>(s.rank);
    RankTotals& r = ranks_.at(rank);
    const double share = row_share(t, s);
    const ComputeKernel& kernel = s.replicated ? kernels_.named(*t.load.table, TSR_COMPUTE_DENSE) : kernel_of(t);
    const PieceCost cost = costs_.piece(t.load, {share, s.cols, kernel}, 1, r.reuse);
    const DataParallelWork work = costs_.data_parallel(t.load, share, world());
    // walk() counts the combine and the ids of tables that are partly replicated, but does not visit data-parallel
    // ones.
    double combine = 0;
    if (!s.replicated)
      combine = machine_.combine.of(
          {.pieces = t.load.features, .bags = t.load.work.outputs, .bytes = t.load.work.outputs * t.load.row_bytes()});
    r.replicated_lookup += cost.forward + combine;
    r.replicated_update += cost.backward;
    r.work.data_parallel += work;
    if (!s.replicated)  // ids are checked, but do not travel
      r.work.route += RouteWork{0, t.load.features, t.load.work.outputs, t.load.work.ids};
    const double marks = costs_.data_parallel_marks(t.load, share),
                 reduced = costs_.data_parallel_bytes(t.load, share, world());
    if (rank == 0) c.reduced_bytes += reduced;
    c.marks.in_host[rank] += marks * (topology_.local_world_size - 1);
    for (auto* across : {&c.marks.across, &c.marks.from_across})
      (*across)[rank] += marks * (world() - topology_.local_world_size);
    out.lookup[rank] += cost.forward;
    out.update[rank] += cost.backward + machine_.data_parallel.of(work);
    if (ranks_.size() > 1) out.bytes[rank] += marks * (world() - 1) + 2 * reduced * (world() - 1) / world();
  }

  // Counts the calls of kernel instances; those without rows are not called.
  void count_calls(const Collection& c) {
    const auto has_rows = [](const LookupOptions& group) {
      return std::any_of(group.tables.begin(), group.tables.end(), [](const LookupTable& t) { return t.rows > 0; });
    };
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto calls = [&](bool replicated) {
        const LocalShards local = local_shards(c.tables, *c.plan, static_cast<int>(rank), replicated, {});
        return static_cast<double>(std::count_if(local.groups.begin(), local.groups.end(), has_rows));
      };
      RankTotals& r = ranks_[rank];
      r.calls += calls(false);
      r.replicated_calls += calls(true);
      for (double* calls : {&r.work.route.calls, &r.work.unpack.calls, &r.work.combine.calls, &r.work.split.calls})
        *calls += 1;
      if (c.reduced_bytes > 0) r.work.data_parallel.calls += 1;
    }
  }

  // Adds the core's work, and the bytes that it exchanges, for one rank.
  class Visitor : public StepVisitor {
   public:
    Visitor(StepModel& model, Collection& c, const RankWiring& own, std::vector<TablePrediction>& tables)
        : model_(model), collection_(c), own_(own), work_(model.ranks_[own.rank].work), tables_(tables) {}

    void ids(const IdRoute& id_route, const ExpectedIdBlock& id_block) override {
      work_.route += route_work(id_block, !own_.wiring.row_splits()[id_route.row_split].is_whole());
      const bool travels = id_route.rank != own_.rank;
      const ExpectedIdBlock sent = travels ? id_block.once() : id_block;
      model_.ranks_[id_route.rank].work.unpack += unpack_work(sent);
      if (travels) bytes(id_route.table_feature, id_route.rank) += sent.bytes();
    }
    void payload(int owner, double bytes) override {
      collection_.ids.largest = std::max(collection_.ids.largest, bytes);
      send(collection_.ids, owner, bytes);
    }
    void rows_to(int home, const RowHop& hop) override {
      const double rows = on_wire(hop, false), gradients = on_wire(hop, true);
      send(collection_.rows, home, rows);
      send(collection_.gradients, home, gradients);  // they take the same links in the other direction
      join(home, hop.elements() * sizeof(float));
      bytes(hop.table_feature, own_.rank) += rows + gradients;
    }
    void put_together(int64_t cols, const ExpectedIdBlock& id_block) override {
      const RowsWork work = rows_work(id_block, static_cast<double>(cols));
      work_.combine += work;
      work_.split += work;
    }

   private:
    double on_wire(const RowHop& hop, bool gradients) const {
      return expected_on_wire(model_.wire_, gradients, hop.elements(), own_.wiring.row_elements());
    }
    void send(Crossing& to, int rank, double bytes) const {
      const int local = model_.topology_.local_world_size;
      const bool crosses = rank / local != own_.rank / local;
      (crosses ? to.across : to.in_host)[own_.rank] += bytes;
      if (crosses) to.from_across[rank] += bytes;
    }
    // Sums all bytes for a home; the walk visits all row routes to a home one after the other.
    void join(int home, double bytes) {
      const HostGrid& hosts = own_.wiring.hosts();
      if (hosts.count > 1 && hosts.of(home) == own_.host) return;
      joined_ = std::exchange(home_, home) == home ? joined_ + bytes : bytes;
      for (Crossing* to : {&collection_.rows, &collection_.gradients}) to->largest = std::max(to->largest, joined_);
    }
    double& bytes(int table_feature, int rank) const {
      return tables_[collection_.placed[own_.wiring.table_features()[table_feature].table].prediction].bytes[rank];
    }

    StepModel& model_;
    Collection& collection_;
    const RankWiring& own_;
    RankWork& work_;
    std::vector<TablePrediction>& tables_;
    int home_ = -1;
    double joined_ = 0;  // bytes for home_ so far
  };

  void walk(Collection& c, std::vector<TablePrediction>& tables) {
    const HostGrid hosts{topology_.hosts(), topology_.local_world_size};
    const Wiring wiring(c.tables, *c.plan, hosts, {.sequence = c.sequence});
    c.rows.two_hops = c.gradients.two_hops = wiring.hosts().count > 1;
    std::vector<ExpectedTableFeature> table_features;
    for (const TableFeature& table_feature : wiring.table_features())
      table_features.push_back(c.placed[table_feature.table].load.table_feature());
    const ExpectedStep step(wiring, table_features);
    const auto places_rows = [&](const RowRoute&) { return kernels_.places_rows(); };
    for (int rank = 0; rank < topology_.world_size; ++rank) {
      const RankWiring own(wiring, rank, places_rows);
      Visitor visitor(*this, c, own, tables);
      step.visit(own, visitor);
    }
  }

  // A collection of pooled tables and one of sequences exchange at the same time.
  template <class Price>
  Exchanged together(Crossing Collection::*what, const Price& price) const {
    Exchanged out;
    std::vector<std::vector<const Crossing*>> all;
    size_t of_kind[2] = {};
    for (const Collection& c : collections_) {
      const size_t at = of_kind[c.sequence]++;
      if (at == all.size()) all.emplace_back();
      all[at].push_back(&(c.*what));
    }
    for (const auto& both : all) out += price(both);
    return out;
  }
  Exchanged exchange_ids() const {
    return together(&Collection::ids, [&](const auto& both) { return exchanges_.ids(both); });
  }
  Exchanged exchange_rows(Crossing Collection::*what) const {
    return together(what, [&](const auto& both) { return exchanges_.rows(both); });
  }

  // Seconds of the dense layers: forward, backward, all-reduce, update.
  struct Dense {
    double forward = 0, backward = 0, update = 0;
    Exchanged reduce;
  };
  Dense dense() const {
    Dense out;
    if (dense_.empty()) return out;
    const DenseFigures& f = machine_.dense;
    const BesideLayersWork beside = dense_.beside_layers(batch_);
    out.forward = dense_.layer_seconds(f.layer_forward, batch_) +
                  dense_.interaction_seconds(f.interaction_forward, batch_) + f.forward.of(beside);
    out.backward = dense_.layer_seconds(f.layer_backward, batch_) +
                   dense_.interaction_seconds(f.interaction_backward, batch_) + f.backward.of(beside);
    const bool early = topology_.compute_device == "cpu";  // on a device, exchanges begin after backward
    const double reduce = reduce_after_backward(dense_, f.layer_backward, batch_, early ? out.backward : 0,
                                                [&](double bytes) { return exchanges_.all_reduce(bytes).seconds(); });
    out.reduce = topology_.hosts() > 1 ? Exchanged{.across = reduce} : Exchanged{.in_host = reduce};
    out.update = f.update.of(dense_.update());
    return out;
  }

  // Counts ids, rows, gradients and marks, and the reductions over all ranks, which send 2 (n - 1) / n of a tensor.
  double bytes_across_hosts() const {
    if (topology_.hosts() == 1) return 0;
    std::vector<double> sent(ranks_.size());
    double reduced = dense_.gradient_bytes * static_cast<double>(dense_.parameters());
    for (const Collection& c : collections_) {
      reduced += c.reduced_bytes;
      exchanges_.add_ids_across(c.ids, sent);
      exchanges_.add_rows_across(c.rows, sent);
      exchanges_.add_rows_across(c.gradients, sent);
      for (size_t rank = 0; rank < sent.size(); ++rank) sent[rank] += c.marks.across[rank];
    }
    return *std::max_element(sent.begin(), sent.end()) + 2 * reduced * (world() - 1) / world();
  }

  void fill_stages(StepPrediction& out) {
    const Dense dense_part = dense();
    const Exchanged ids = exchange_ids(), rows = exchange_rows(&Collection::rows),
                    gradients = exchange_rows(&Collection::gradients);
    Exchanged reduce;
    for (const Collection& c : collections_) {
      if (c.reduced_bytes > 0) reduce += exchanges_.direct(c.marks);
      reduce += exchanges_.all_reduce(c.reduced_bytes);
    }
    const KernelFigures* figures = kernels_.figures(machine_);
    const double call_forward = figures == nullptr ? 0 : figures->call_forward;
    const double call_backward = figures == nullptr ? 0 : figures->call_backward;
    double routing = 0, looking = 0, middle = 0, updating = 0, worked = 0;
    for (RankTotals& r : ranks_) {
      const RankWork& work = r.work;
      const double route = machine_.route.of(work.route), unpack = machine_.unpack.of(work.unpack);
      const double lookup = r.lookup + r.replicated_lookup + (r.calls + r.replicated_calls) * call_forward;
      const double combine = machine_.combine.of(work.combine), split = machine_.split.of(work.split);
      const double update = r.update + r.calls * call_backward;
      const double data_parallel =
          r.replicated_update + r.replicated_calls * call_backward + machine_.data_parallel.of(work.data_parallel);
      out.work.push_back(work);
      out.stages.push_back({{"route", route},
                            {"exchange ids", ids.seconds() + unpack},
                            {"lookup", lookup},
                            {"exchange rows", rows.seconds()},
                            {"combine", combine},
                            {"dense forward", dense_part.forward},
                            {"dense backward", dense_part.backward},
                            {"split", split},
                            {"exchange gradients", gradients.seconds()},
                            {"table update", update},
                            {"data parallel", data_parallel + reduce.seconds()},
                            {"dense all-reduce", dense_part.reduce.seconds()},
                            {"dense update", dense_part.update}});
      routing = std::max(routing, route);
      looking = std::max(looking, unpack + lookup);
      middle = std::max(middle, combine + split);
      updating = std::max(updating, update + data_parallel);
      worked += route + unpack + lookup + combine + split + update + data_parallel;
    }
    const double work =
        routing + looking + middle + updating + dense_part.forward + dense_part.backward + dense_part.update;
    Exchanged exchanged = dense_part.reduce;
    for (const Exchanged& each : {ids, rows, gradients, reduce}) exchanged += each;
    out.exchanges = exchanged.seconds();
    out.across_hosts = exchanged.across;
    out.imbalance = routing + looking + middle + updating - worked / static_cast<double>(ranks_.size());
    out.bytes_across_hosts = bytes_across_hosts();
    out.waiting = exchanges_.wait() * work;
    out.seconds = work + out.exchanges + out.waiting;
  }

  const Topology topology_;
  double batch_;
  const WireBytes wire_;
  Machine machine_;
  ExchangeModel exchanges_;
  ComputeKernels kernels_;
  StepCosts costs_;
  DenseWork dense_;
  std::vector<RankTotals> ranks_;
  std::vector<Collection> collections_;
};

}  // namespace

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
