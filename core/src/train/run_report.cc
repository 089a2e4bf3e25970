#include "tessera/train_job.h"

#include <nlohmann/json.hpp>

#include "config/json.h"
#include "train/metrics_log.h"
#include "train/train_report.h"

namespace tessera {
namespace {

using json = nlohmann::ordered_json;

json of(const PlannedFigure& f) { return {{"predicted", f.predicted}, {"measured", f.measured}}; }

json of(const ArrivedRows& a) {
  json out = {{"rows", a.rows}, {"waited_s", a.waited_s}};
  if (!a.position.empty()) out["position"] = config::parse_json(a.position, {"the reader's position"});
  if (!a.event_times) return out;
  const EventTimeFigures& t = *a.event_times;
  const EventTimeFigures::Delay& d = t.delay_s;
  out["event_times"] = {
      {"rows", t.rows},           {"first", t.first},
      {"newest", t.newest},       {"delay_s", {{"mean", d.mean}, {"p50", d.p50}, {"p99", d.p99}, {"max", d.max}}},
      {"late_rows", t.late_rows}, {"max_lateness_s", t.max_lateness_s}};
  return out;
}

json of(const TrainValidation& v) {
  json out = {{"step", v.step}, {"best", v.best}};
  out.update(metrics_json(v.metrics));
  out["seconds"] = v.seconds;
  return out;
}

json of(const CheckpointCounts& c) {
  return {{"saved", c.saved},           {"saved_changes", c.saved_changes},
          {"failed", c.failed},         {"beside_training", c.beside_training},
          {"copy_bytes", c.copy_bytes}, {"longest_pause_s", c.longest_pause_s}};
}

json of(const PublicationCounts& p) {
  return {{"published", p.published},
          {"bases", p.bases},
          {"failed", p.failed},
          {"changed_rows", p.changed_rows},
          {"delta_bytes", p.delta_bytes},
          {"longest_pause_s", p.longest_pause_s},
          {"longest_delta_pause_s", p.longest_delta_pause_s}};
}

json of(const TableCounts& t) {
  json out = {{"rows_in_use", t.rows_in_use},
              {"lookups", t.lookups},
              {"hits", t.hits},
              {"evictions", t.evictions},
              {"bytes", t.bytes}};
  if (t.disk)
    out.update({{"storage_reads", t.disk->storage_reads},
                {"storage_writes", t.disk->storage_writes},
                {"read_us", t.disk->read_us},
                {"wait_us", t.disk->wait_us}});
  return out;
}

json of(const PlanVersusActual& p) {
  json ranks = json::array(), tables = json::array();
  for (const PlanVersusActual::Rank& r : p.ranks) {
    json stages;
    for (const auto& [name, figure] : r.stages_us) stages[name] = of(figure);
    ranks.push_back({{"us", of(r.us)},
                     {"stages_us", std::move(stages)},
                     {"bytes", {{"in_host", of(r.in_host)}, {"across_hosts", of(r.across_hosts)}}}});
  }
  for (const PlanVersusActual::Table& t : p.tables) {
    tables.push_back({{"table", t.table},
                      {"rank", t.rank},
                      {"sharding_type", t.sharding_type},
                      {"lookup_us", of(t.lookup_us)},
                      {"update_us", of(t.update_us)},
                      {"exchanged_bytes", t.exchanged_bytes}});
    if (t.disk_reads) tables.back()["disk_reads"] = of(*t.disk_reads);
  }
  return {{"figures", p.figures},
          {"step_us", of(p.step_us)},
          {"ranks", std::move(ranks)},
          {"sampled_steps", p.sampled_steps},
          {"tables", std::move(tables)}};
}

json traffic_json(const std::vector<ExchangeFigures>& exchanges) {
  const auto pair = [](const PlannedFigure& f) { return json{{"sent", f.measured}, {"planned", f.predicted}}; };
  json out;
  for (const ExchangeFigures& e : exchanges)
    out[e.exchange] = {{"in_host", pair(e.in_host)}, {"across_hosts", pair(e.across_hosts)}};
  return out;
}

json data_json(const RunReport& r) {
  json out = {{"name", r.data_name}, {"train_rows", r.train_rows}, {"test_rows", r.test_rows}};
  if (!r.test_split.empty()) out["test_split"] = r.test_split;
  return out;
}

json train_json(const RunReport& r) {
  json out = {{"samples", r.samples}, {"seconds", r.seconds}, {"samples_per_s", r.samples_per_s}, {"loss", r.loss}};
  for (const auto& [name, value] : r.training_metrics) out["metrics"][name] = value;
  return out;
}

}  // namespace

json json_of(const RunReport& r) {
  json out;
  out["model"] = r.model;
  out["data"] = data_json(r);
  out["world_size"] = r.world_size;
  out["backend"] = r.backend;
  out["device"] = r.device;
  out["dense_device"] = r.dense_device;
  out["dense_precision"] = r.dense_precision;
  if (!r.why_float32.empty()) out["why_float32"] = r.why_float32;
  if (!r.why_in_host_memory.empty()) out["why_in_host_memory"] = r.why_in_host_memory;
  out["layers"] = json::object();
  for (const LayerChoice& l : r.layers)
    out["layers"][l.layer] = {{"component", l.component}, {"instead_of", l.instead_of}};
  out["steps"] = r.steps;
  out["first_step"] = r.first_step;
  if (!r.start.empty()) out["start"] = r.start;
  out["train"] = train_json(r);
  if (r.arrived) out["arrived"] = of(*r.arrived);
  out["test"] = metrics_json(r.test.metrics);
  out["test"]["seconds"] = r.test.seconds;
  out["test_step"] = r.test.step;
  for (const TrainValidation& v : r.validations) out["validations"].push_back(of(v));
  out["stages"] = json::object();
  for (const StageTime& s : r.stages)
    out["stages"][s.name] = {{"us_per_step", s.us}, {"largest_us_per_step", s.largest_us}};
  out["seconds_to_first_step"] = r.seconds_to_first_step;
  if (r.pipeline)
    out["pipeline"] = {{"work_us_per_step", r.pipeline->work_us},
                       {"waited_us_per_step", r.pipeline->waited_us},
                       {"hidden_us_per_step", r.pipeline->hidden_us}};
  if (!r.traffic.empty()) out["bytes_per_step"] = traffic_json(r.traffic);
  if (r.ids)
    out["ids_per_step"] = {
        {"wanted", r.ids->wanted}, {"sent", r.ids->sent.measured}, {"planned", r.ids->sent.predicted}};
  if (r.checkpoints) out["checkpoints"] = of(*r.checkpoints);
  if (r.publications) out["publications"] = of(*r.publications);
  out["plan_versus_actual"] = of(r.plan_versus_actual);
  out["tables"] = json::object();
  for (const TableCounts& t : r.tables) out["tables"][t.name] = of(t);
  out["dropped_ids"] = r.dropped_ids;
  json unknown = json::object();  // of the test, where they are many
  for (const UnknownIds& ids : r.test.unknown_ids) {
    if (ids.are_many()) unknown[ids.column] = {{"ids", ids.ids}, {"unknown", ids.unknown}};
  }
  if (!unknown.empty()) out["unknown_ids"] = std::move(unknown);
  out["plan"] = config::parse_json(r.plan.json(), {"the plan"});
  out["losses"] = r.losses;
  out["config"] = r.config;
  return out;
}

std::string to_json(const RunReport& report, int indent) { return json_of(report).dump(indent); }

}  // namespace tessera
