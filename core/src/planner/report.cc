// The planner's result as text for people.
#include <algorithm>
#include <iomanip>
#include <map>
#include <numeric>

#include "tessera/planner.h"
#include "tessera/sdk/nearest.h"

namespace tessera {

namespace {

using Row = std::vector<std::string>;

// Lays out columns two blanks apart. The first `left` columns are texts, aligned left; the others are figures.
std::string table_text(const Row& header, const std::vector<Row>& rows, size_t left) {
  std::vector<size_t> width(header.size());
  for (size_t c = 0; c < header.size(); ++c) {
    width[c] = header[c].size();
    for (const Row& row : rows) width[c] = std::max(width[c], row[c].size());
  }
  std::string out;
  const auto add = [&](const Row& row) {
    std::string line = " ";
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string blanks(width[c] - row[c].size(), ' ');
      line += " " + (c < left ? row[c] + blanks : blanks + row[c]) + " ";
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  add(header);
  for (const Row& row : rows) add(row);
  return out;
}

std::string number(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

std::string mib(int64_t bytes) { return number(static_cast<double>(bytes) / (1 << 20), 1); }
std::string micros(double milliseconds) { return number(milliseconds * 1000, 2); }

std::string percent(int64_t part, int64_t whole) {
  return whole == 0 ? "-" : str_cat(number(100.0 * static_cast<double>(part) / static_cast<double>(whole), 1), "%");
}

// Lists ranks as runs: "0-3, 6".
std::string runs(const std::vector<int>& ranks) {
  std::string out;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    out += str_cat(out.empty() ? "" : ",", ranks[i]);
    if (end - i > 1) out += str_cat("-", ranks[end - 1]);
    i = end;
  }
  return out;
}

const ParameterSharding& sharding_of(const PlanResult& result, const ShardingOption& option) {
  return result.plan.at(option.path).at(option.name);
}

// The table's name, with the path of its module if there are several modules.
std::string label_of(const PlanResult& result, const ShardingOption& option) {
  return result.plan.modules.size() == 1 || option.path.empty() ? option.name : option.path + "." + option.name;
}

// The kinds of memory that the chosen options use. Every plan uses at least one.
struct Kinds {
  explicit Kinds(const PlanResult& r) {
    for (const size_t index : r.chosen) {
      const Storage& s = r.space.options[index].total_storage;
      hbm = hbm || s.hbm > 0;
      disk = disk || s.ssd > 0;
    }
    for (const Storage& s : r.rank_storage) ddr = ddr || s.ddr > 0;
  }
  bool hbm = false, ddr = false, disk = false;
};

// Adds `cells` to the row if `wanted`.
void add_if(bool wanted, const std::vector<std::string>& cells, Row& row) {
  if (wanted) row.insert(row.end(), cells.begin(), cells.end());
}

// Two tables, because one would be too wide for a terminal: the memory of the ranks, and their times.
std::string rank_tables(const PlanResult& r, const Kinds& kinds) {
  const auto ranks = static_cast<size_t>(r.topology.world_size);
  std::vector<Perf> perf(ranks);
  std::vector<std::map<std::string, int>> shards(ranks);
  for (const size_t index : r.chosen) {
    const ShardingOption& option = r.space.options[index];
    const ParameterSharding& sharding = sharding_of(r, option);
    for (size_t i = 0; i < option.shards.size(); ++i) {
      const auto rank = static_cast<size_t>(sharding.shards[i].rank);
      perf[rank] += option.shards.run_of(i).first.perf;
      ++shards[rank][option.sharding_type];
    }
  }
  std::vector<Row> memory, times;
  for (size_t i = 0; i < ranks; ++i) {
    const Storage& used = r.rank_storage[i];
    const Storage& of = r.reserved.per_rank[i];
    std::string list;
    for (const auto& [type, count] : shards[i]) list += str_cat(list.empty() ? "" : ", ", type, " ", count);
    const std::string rank = r.plan.placement(static_cast<int>(i));
    memory.push_back({rank, list});
    add_if(kinds.hbm, {mib(used.hbm), percent(used.hbm, of.hbm)}, memory.back());
    add_if(kinds.ddr, {mib(used.ddr), percent(used.ddr, of.ddr)}, memory.back());
    add_if(kinds.disk, {mib(used.ssd), percent(used.ssd, of.ssd)}, memory.back());
    times.push_back({rank, micros(r.rank_perf[i]), micros(perf[i].fwd_compute), micros(perf[i].fwd_comms),
                     micros(perf[i].bwd_compute), micros(perf[i].bwd_comms)});
  }
  Row header{"rank", "shards"};
  add_if(kinds.hbm, {"hbm MiB", "of free"}, header);
  add_if(kinds.ddr, {"ddr MiB", "of free"}, header);
  add_if(kinds.disk, {"disk MiB", "of free"}, header);
  return table_text(header, memory, 2) + "\n" +
         table_text({"rank", "step us", "fwd compute", "fwd comms", "bwd compute", "bwd comms"}, times, 1);
}

Perf perf_of(const ShardingOption& option) {
  Perf sum;
  for (const Shards::Run& run : option.shards.runs()) {
    for (size_t i = 0; i < run.count; ++i) sum += run.first.perf;
  }
  return sum;
}

std::string table_table(const PlanResult& r, const Kinds& kinds) {
  std::vector<Row> rows;
  for (const size_t index : r.chosen) {
    const ShardingOption& o = r.space.options[index];
    const Storage& s = o.total_storage;
    rows.push_back(
        {label_of(r, o), o.sharding_type, o.compute_kernel, runs(sharding_of(r, o).ranks()), str_cat(o.shards.size())});
    add_if(kinds.hbm, {mib(s.hbm)}, rows.back());
    add_if(kinds.ddr, {mib(s.ddr)}, rows.back());
    add_if(true, {micros(o.largest_perf), micros(o.total_perf)}, rows.back());
    add_if(kinds.disk, {mib(s.ssd), number(perf_of(o).storage_reads, 1)}, rows.back());
  }
  Row header{"table", "sharding", "kernel", "ranks", "shards"};
  add_if(kinds.hbm, {"hbm MiB"}, header);
  add_if(kinds.ddr, {"ddr MiB"}, header);
  add_if(true, {"max us", "sum us"}, header);
  add_if(kinds.disk, {"disk MiB", "reads a step"}, header);
  return table_text(header, rows, 4);
}

// Lists the tables whose repeated rows travel once.
std::string once_lines(const PlanResult& r) {
  std::string out;
  for (const size_t index : r.chosen) {
    const ShardingOption& o = r.space.options[index];
    if (o.distinct_ids < 1)
      out += str_cat("Rows of ", label_of(r, o), " that a batch repeats travel once: about ",
                     number(100 * o.distinct_ids, 0), " % of its ids.\n");
  }
  return out.empty() ? out : "\n" + out;
}

// The options of one table, without columns that are the same for all.
std::string option_table(const std::vector<const ShardingOption*>& options, const ShardingOption* taken) {
  const auto any = [&](const auto& property) { return std::any_of(options.begin(), options.end(), property); };
  const bool kernels = any([&](const ShardingOption* o) { return o->compute_kernel != taken->compute_kernel; });
  const bool hbm = any([](const ShardingOption* o) { return o->total_storage.hbm > 0; });
  const auto tenths = [](double milliseconds) { return number(milliseconds * 1000, 1); };
  std::vector<Row> rows;
  for (const ShardingOption* o : options) {
    const Perf p = perf_of(*o);
    rows.push_back({o == taken ? "*" : "", o->sharding_type});
    add_if(kernels, {o->compute_kernel}, rows.back());
    add_if(true, {str_cat(o->shards.size())}, rows.back());
    add_if(hbm, {mib(o->total_storage.hbm)}, rows.back());
    add_if(true,
           {mib(o->total_storage.ddr), tenths(o->largest_perf), tenths(o->total_perf), tenths(p.fwd_compute),
            tenths(p.bwd_compute), tenths(p.fwd_comms + p.bwd_comms)},
           rows.back());
  }
  Row header{"", "sharding"};
  add_if(kernels, {"kernel"}, header);
  add_if(true, {"shards"}, header);
  add_if(hbm, {"hbm MiB"}, header);
  add_if(true, {"ddr MiB", "slowest", "sum", "lookup", "update", "exchange"}, header);
  return table_text(header, rows, kernels ? 3 : 2);
}

// The stage that takes most of an option's time.
std::string main_part(const ShardingOption& option) {
  const Perf p = perf_of(option);
  const std::pair<double, const char*> parts[] = {{p.fwd_compute, "looking up"},
                                                  {p.bwd_compute, "the update"},
                                                  {p.fwd_comms + p.bwd_comms, "exchanges"},
                                                  {p.prefetch_compute, "prefetching"}};
  const auto& [most, name] = *std::max_element(std::begin(parts), std::end(parts));
  return p.total() > 0 ? str_cat(name, " (",
                                 percent(static_cast<int64_t>(1e6 * most), static_cast<int64_t>(1e6 * p.total())), ")")
                       : "nothing";
}

// Sentences that explain why an option was taken. `others` are the table's other options.
std::string reasons(const PlanResult& r, const ShardingOption& taken,
                    const std::vector<const ShardingOption*>& others) {
  const std::vector<int> ranks = sharding_of(r, taken).ranks();
  double load = 0;
  for (const int rank : ranks) load = std::max(load, r.rank_perf[static_cast<size_t>(rank)]);
  std::string out = str_cat("Table ", label_of(r, taken), " is sharded ", taken.sharding_type, " with ",
                            taken.compute_kernel, ": ", taken.shards.size(), " shard(s) on ranks ", runs(ranks),
                            ". Its slowest shard takes ", micros(taken.largest_perf), " us of the ", micros(load),
                            " us that the busiest of these ranks needs for a step; most of its time goes to ",
                            main_part(taken), ". ");
  const ShardingOption* rival = nullptr;  // the best option of another kind
  for (const ShardingOption* o : others) {
    const bool same = o->sharding_type == taken.sharding_type && o->compute_kernel == taken.compute_kernel;
    if (!same && (rival == nullptr || o->largest_perf < rival->largest_perf)) rival = o;
  }
  if (rival == nullptr) return out + "Its constraints leave no other choice.";
  const double faster = rival->largest_perf - taken.largest_perf;
  out += str_cat("The best alternative, ", rival->sharding_type, " with ", rival->compute_kernel, ", ");
  if (faster >= 0) {
    return out + str_cat("would take ", micros(rival->largest_perf), " us in its slowest shard, ", micros(faster),
                         " us more, most of it for ", main_part(*rival), ".");
  }
  out += str_cat("alone would be ", micros(-faster), " us faster in its slowest shard, but ");
  if (rival->total_perf > taken.total_perf) {
    return out + str_cat("costs all ranks together ", micros(rival->total_perf - taken.total_perf),
                         " us more, which the other tables need.");
  }
  return out + "the plan as a whole found no better place for it: memory, other tables or constraints decide.";
}

}  // namespace

std::string PlanResult::report() const {
  const bool may_be_on_disk = std::any_of(space.options.begin(), space.options.end(),
                                          [](const ShardingOption& o) { return o.total_storage.ssd > 0; });
  Storage left = reserved.available;
  if (!may_be_on_disk) left.ssd = 0;
  std::string out = str_cat("Plan for ", topology.world_size, " ranks on ", topology.hosts(), " host(s), device ",
                            topology.compute_device, ": ", num_proposals, " proposals, ", num_plans, " of them fit");
  if (cut_short) out += " (the time limit ended the search)";
  if (space.narrowed > 0) {
    out += str_cat(" (the time limit left shardings of ", space.narrowed, " of ", space.tables(),
                   " tables out: a longer one may find a better plan)");
  }
  if (perf_rating) out += str_cat("; busiest rank ", micros(*perf_rating), " us per step");
  const std::string sharders = sdk::joined(space.sharders);
  out += str_cat("\n\nSharders tried: ", sharders.empty() ? "none" : sharders, "; times are by ", space.figures);
  out += str_cat("\nMemory per rank for tables: ", left.str(), "; set aside for the input: ", reserved.kjt.str());
  if (reserved.dense) out += str_cat(", for dense parameters: ", reserved.dense->str());
  if (may_be_on_disk && !topology.ssd_note.empty()) out += str_cat("; ", topology.ssd_note);
  if (chosen.empty()) return out + "\n\nThere are no tables.\n";
  const double sum = std::accumulate(rank_perf.begin(), rank_perf.end(), 0.0);
  const double busiest = *std::max_element(rank_perf.begin(), rank_perf.end());
  const Kinds kinds(*this);
  out += "\n\n" + rank_tables(*this, kinds) + "\n" + table_table(*this, kinds) + once_lines(*this);
  return out + str_cat("\nBalance: the busiest rank has ", number(busiest * topology.world_size / sum, 3),
                       " times the mean load.\n");
}

std::string PlanResult::explain(const std::string& table) const {
  std::string out;
  for (size_t t = 0; t < chosen.size(); ++t) {
    const ShardingOption& taken = space.options[chosen[t]];
    if (taken.name != table && str_cat(taken.path, '.', taken.name) != table) continue;
    std::vector<const ShardingOption*> options;
    for (size_t i = space.first[t]; i < space.first[t + 1]; ++i) options.push_back(&space.options[i]);
    std::stable_sort(options.begin(), options.end(), [](const ShardingOption* a, const ShardingOption* b) {
      return a->largest_perf < b->largest_perf;
    });
    std::vector<const ShardingOption*> others = options;
    std::erase(others, &taken);
    out += str_cat(reasons(*this, taken, others), " The plan takes (*); alone, the options cost, in us:\n\n",
                   option_table(options, &taken));
  }
  if (!out.empty()) return out;
  std::string known;
  for (const size_t index : chosen) known += str_cat(known.empty() ? "" : ", ", label_of(*this, space.options[index]));
  fail(Code::kNotFound, "the plan has no table named ", table, "; there are ", known.empty() ? "none" : known);
}

}  // namespace tessera
