// Reads and writes a machine's file, which docs/calibration.md describes.
#include <cmath>

#include "config/json.h"
#include "tessera/machine.h"

namespace tessera {

namespace {

using config::JsonObject;
using json = nlohmann::ordered_json;

constexpr int64_t kMachineFormat = 2;
constexpr double kPerNs = 1e9, kPerUs = 1e6;

// Rounds to five digits, which is finer than any measurement.
double rounded(double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double unit = std::pow(10, std::floor(std::log10(std::abs(x))) - 4);
  return std::round(x / unit) * unit;
}

// A member of a struct and its key in JSON, for both reading and writing.
template <class T>
struct Member {
  const char* key;
  double T::*value;
};
constexpr Member<tsr_row_cost> kRowMembers[] = {{"lookup_ns", &tsr_row_cost::lookup},
                                                {"update_ns", &tsr_row_cost::update},
                                                {"repeat_ns", &tsr_row_cost::repeat},
                                                {"bag_forward_ns", &tsr_row_cost::bag_forward},
                                                {"bag_backward_ns", &tsr_row_cost::bag_backward}};
constexpr Member<KernelFigures> kKernelMembers[] = {{"run_forward_ns", &KernelFigures::run_forward},
                                                    {"run_backward_ns", &KernelFigures::run_backward},
                                                    {"call_forward_ns", &KernelFigures::call_forward},
                                                    {"call_backward_ns", &KernelFigures::call_backward}};

// Calls body(key, figures) for each stage. `M` is Machine or const Machine.
template <class M, class Body>
void each_stage(M& machine, const Body& body) {
  body("route", machine.route);
  body("unpack", machine.unpack);
  body("combine", machine.combine);
  body("split", machine.split);
  body("replica", machine.data_parallel);
}
template <class M, class Body>
void each_dense_stage(M& machine, const Body& body) {
  body("update", machine.dense.update);
  body("forward", machine.dense.forward);
  body("backward", machine.dense.backward);
}
template <class M, class Body>
void each_dense_curve(M& machine, const Body& body) {
  body("layer_forward", machine.dense.layer_forward);
  body("layer_backward", machine.dense.layer_backward);
  body("interaction_forward", machine.dense.interaction_forward);
  body("interaction_backward", machine.dense.interaction_backward);
}

template <class T, size_t N>
void write(json& to, const T& from, const Member<T> (&members)[N]) {
  for (const Member<T>& m : members) to[m.key] = rounded(from.*(m.value) * kPerNs);
}

template <StageWork Work>
json write(const StageFigures<Work>& figures) {
  json out;
  for (const auto& unit : Work::units()) out[str_cat(unit.key, "_ns")] = rounded(figures.seconds.*unit.count * kPerNs);
  return out;
}

json write(const Curve& curve) {
  json out = json::array();
  for (const auto& [size, seconds] : curve.points()) out.push_back({rounded(size), rounded(seconds * kPerUs)});
  return out;
}

json write(const LinkFigures& link) {
  json out{{"backend", link.backend},
           {"ranks", link.ranks},
           {"all_to_all_us", write(link.all_to_all)},
           {"all_reduce_us", write(link.all_reduce)},
           {"wait", rounded(link.wait)}};
  if (link.delay > 0) out["delay_us"] = rounded(link.delay * kPerUs);
  return out;
}

json write(const KernelFigures& kernel) {
  json out{{"kernel", kernel.kernel}};
  write(out, kernel, kKernelMembers);
  for (const tsr_row_cost& row : kernel.rows) {
    json line{{"row_bytes", row.row_bytes}, {"reuse_bytes", row.reuse_bytes}};
    write(line, row, kRowMembers);
    out["rows"].push_back(std::move(line));
  }
  return out;
}

constexpr double kMostNs = 1e15;

template <class T, size_t N>
void read(const JsonObject& from, T& to, const Member<T> (&members)[N]) {
  for (const Member<T>& m : members) to.*(m.value) = from.within(m.key, 0.0, kMostNs) / kPerNs;
}

template <StageWork Work>
void read(const JsonObject& from, StageFigures<Work>& to) {
  for (const auto& unit : Work::units())
    to.seconds.*unit.count = from.within(str_cat(unit.key, "_ns").c_str(), 0.0, kMostNs) / kPerNs;
}

Curve curve_from(const JsonObject& from, const char* key) {
  std::vector<std::pair<double, double>> points;
  for (const auto& point : from.get<std::vector<std::vector<double>>>(key)) {
    if (point.size() != 2) from.wrong_at(key, " has a list of ", point.size(), "; [size, microseconds] is expected");
    points.emplace_back(point[0], point[1] / kPerUs);
  }
  if (points.empty()) from.wrong_at(key, " has no points");
  try {
    return Curve(std::move(points));
  } catch (const Error& e) {
    from.wrong_at(key, ": ", e.what());
  }
}

LinkFigures link_from(const JsonObject& from) {
  LinkFigures out{.backend = from.get<std::string>("backend"),
                  .ranks = from.within("ranks", 2, 1000000),
                  .all_to_all = curve_from(from, "all_to_all_us"),
                  .all_reduce = curve_from(from, "all_reduce_us")};
  if (from.has("wait")) out.wait = from.within("wait", 0.0, 1e3);
  if (from.has("delay_us"))
    out.delay = from.within("delay_us", 0.0, out.all_to_all.points().front().second * kPerUs) / kPerUs;
  return out;
}

bool full_grid(const std::vector<tsr_row_cost>& rows) {
  if (rows.empty()) return false;
  size_t columns = 1;
  while (columns < rows.size() && rows[columns].row_bytes == rows[0].row_bytes) ++columns;
  bool full = rows.size() % columns == 0;
  for (size_t i = 0; full && i < rows.size(); ++i) {
    const size_t line = i / columns, column = i % columns;
    full = rows[i].row_bytes == rows[line * columns].row_bytes && rows[i].reuse_bytes == rows[column].reuse_bytes &&
           (column == 0 || rows[i].reuse_bytes > rows[i - 1].reuse_bytes) &&
           (line == 0 || rows[i].row_bytes > rows[i - columns].row_bytes);
  }
  return full;
}

KernelFigures kernel_from(const JsonObject& from) {
  KernelFigures out;
  out.kernel = from.get<std::string>("kernel");
  read(from, out, kKernelMembers);
  for (const JsonObject& line : from.objects("rows")) {
    tsr_row_cost row{};
    row.row_bytes = line.within("row_bytes", 1.0, 1e9);
    row.reuse_bytes = line.within("reuse_bytes", 1.0, 1e18);
    read(line, row, kRowMembers);
    out.rows.push_back(row);
  }
  if (!full_grid(out.rows))
    from.wrong_at("rows", " is not a full grid: every row_bytes needs the same reuse_bytes, both ascending");
  return out;
}

}  // namespace

std::string Machine::json() const {
  nlohmann::ordered_json out{{"tessera_machine", kMachineFormat},
                             {"name", name},
                             {"device", device},
                             {"measured", measured},
                             {"ranks", ranks},
                             {"threads", threads}};
  out["kernels"] = nlohmann::ordered_json::array();
  for (const KernelFigures& k : kernels) out["kernels"].push_back(write(k));
  if (intra_host) out["intra_host"] = write(*intra_host);
  if (inter_host) out["inter_host"] = write(*inter_host);
  each_stage(*this, [&](const char* key, const auto& stage) { out["stages"][key] = write(stage); });
  each_dense_curve(*this, [&](const char* key, const Curve& curve) { out["dense"][key] = write(curve); });
  each_dense_stage(*this, [&](const char* key, const auto& stage) { out["dense"][key] = write(stage); });
  return out.dump(1) + "\n";
}

Machine Machine::from_json(const std::string& text, const std::string& source) {
  const config::JsonSource file{.name = source, .advice = "; tessera calibrate --save FILE makes a right one"};
  const auto value = config::parse_json(text, file);
  const JsonObject root(value, file);
  const auto format = root.get<int64_t>("tessera_machine");
  if (format != kMachineFormat) {
    root.wrong("its format is ", format, " and this program reads ", kMachineFormat, ": it was written by ",
               format > kMachineFormat ? "a newer" : "an older", " one");
  }
  Machine m{.name = root.get<std::string>("name"),
            .device = root.get<std::string>("device"),
            .measured = root.get<bool>("measured"),
            .ranks = root.within("ranks", 1, 1000000),
            .threads = root.within("threads", 1, 4096)};
  for (const JsonObject& k : root.objects("kernels")) m.kernels.push_back(kernel_from(k));
  if (root.has("intra_host")) m.intra_host = link_from(root.object("intra_host"));
  if (root.has("inter_host")) m.inter_host = link_from(root.object("inter_host"));
  const JsonObject stages = root.object("stages"), dense = root.object("dense");
  each_stage(m, [&](const char* key, auto& stage) { read(stages.object(key), stage); });
  each_dense_curve(m, [&](const char* key, Curve& to) { to = curve_from(dense, key); });
  each_dense_stage(m, [&](const char* key, auto& stage) { read(dense.object(key), stage); });
  return m;
}

}  // namespace tessera
