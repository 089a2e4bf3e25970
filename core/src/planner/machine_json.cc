// A machine's file form. docs/calibration.md describes it.
#include <cmath>

#include "config/json.h"
#include "tessera/machine.h"

namespace tessera {

namespace {

using json = nlohmann::ordered_json;

constexpr int kMachineFormat = 1;
constexpr double kPerNs = 1e9, kPerUs = 1e6;

// Five digits: more than a measurement is worth.
double rounded(double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double unit = std::pow(10, std::floor(std::log10(std::abs(x))) - 4);
  return std::round(x / unit) * unit;
}

// The members of a struct with their keys, for reading and writing alike.
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
constexpr Member<StageFigures> kStageMembers[] = {
    {"call_ns", &StageFigures::call}, {"run_ns", &StageFigures::run},       {"bag_ns", &StageFigures::bag},
    {"id_ns", &StageFigures::id},     {"cut_id_ns", &StageFigures::cut_id}, {"byte_ns", &StageFigures::byte}};

struct Stage {
  const char* key;
  StageFigures Machine::*value;
};
constexpr Stage kStages[] = {{"route", &Machine::route},
                             {"unpack", &Machine::unpack},
                             {"combine", &Machine::combine},
                             {"split", &Machine::split},
                             {"replica", &Machine::replica}};

struct DenseCurve {
  const char* key;
  Curve DenseFigures::*value;
};
constexpr DenseCurve kDenseCurves[] = {{"layer_forward", &DenseFigures::layer_forward},
                                       {"layer_backward", &DenseFigures::layer_backward},
                                       {"interaction_forward", &DenseFigures::interaction_forward},
                                       {"interaction_backward", &DenseFigures::interaction_backward}};

struct DenseStage {
  const char* key;
  StageFigures DenseFigures::*value;
  bool needed;  // files of former versions have no others
};
constexpr DenseStage kDenseStages[] = {{"update", &DenseFigures::update, true},
                                       {"forward", &DenseFigures::forward, false},
                                       {"backward", &DenseFigures::backward, false}};

template <class T, size_t N>
void write(json& to, const T& from, const Member<T> (&members)[N]) {
  for (const Member<T>& m : members) to[m.key] = rounded(from.*(m.value) * kPerNs);
}

json write(const Curve& curve) {
  json out = json::array();
  for (const auto& [size, seconds] : curve.points()) out.push_back({rounded(size), rounded(seconds * kPerUs)});
  return out;
}

json write(const LinkFigures& link) {
  return {{"backend", link.backend},
          {"ranks", link.ranks},
          {"all_to_all_us", write(link.all_to_all)},
          {"all_reduce_us", write(link.all_reduce)},
          {"wait", rounded(link.wait)}};
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

// Reads one file and says where it is wrong.
class Reader {
 public:
  explicit Reader(const std::string& source) : source_(source) {}

  [[noreturn]] void bad(const std::string& where, const std::string& what) const {
    fail(Code::kInvalidArgument, source_, where.empty() ? "" : ", ", where, ": ", what,
         "; tessera calibrate --save FILE makes a right one");
  }

  const json& field(const json& object, const char* key, const std::string& where) const {
    if (!object.is_object()) bad(where, "an object {...} is expected here");
    const auto found = object.find(key);
    if (found == object.end()) bad(where, cat("\"", key, "\" is missing"));
    return *found;
  }

  double number(const json& object, const char* key, double least, double most, const std::string& where) const {
    const json& value = field(object, key, where);
    if (!value.is_number() || !(value.get<double>() >= least) || !(value.get<double>() <= most)) {
      bad(where, cat("\"", key, "\" is ", value.dump(), "; a number from ", least, " to ", most, " is expected"));
    }
    return value.get<double>();
  }

  std::string text(const json& object, const char* key, const std::string& where) const {
    const json& value = field(object, key, where);
    if (!value.is_string()) bad(where, cat("\"", key, "\" is ", value.dump(), "; a text is expected"));
    return value.get<std::string>();
  }

  const json& array(const json& object, const char* key, const std::string& where) const {
    const json& value = field(object, key, where);
    if (!value.is_array() || value.empty()) bad(where, cat("\"", key, "\" is no list, or an empty one"));
    return value;
  }

  template <class T, size_t N>
  void read(const json& from, T& to, const Member<T> (&members)[N], const std::string& where) const {
    for (const Member<T>& m : members) to.*(m.value) = number(from, m.key, 0, kMost, where) / kPerNs;
  }

  Curve curve(const json& object, const char* key, const std::string& where) const {
    std::vector<std::pair<double, double>> points;
    for (const json& point : array(object, key, where)) {
      if (!point.is_array() || point.size() != 2 || !point[0].is_number() || !point[1].is_number()) {
        bad(where, cat("\"", key, "\" has ", point.dump(), "; [size, microseconds] is expected"));
      }
      points.emplace_back(point[0].get<double>(), point[1].get<double>() / kPerUs);
    }
    try {
      return Curve(std::move(points));
    } catch (const Error& e) {
      bad(where, cat("\"", key, "\": ", e.what()));
    }
  }

  LinkFigures link(const json& from, const std::string& where) const {
    LinkFigures out;
    out.backend = text(from, "backend", where);
    out.ranks = static_cast<int>(number(from, "ranks", 2, 1e6, where));
    out.all_to_all = curve(from, "all_to_all_us", where);
    out.all_reduce = curve(from, "all_reduce_us", where);
    if (from.contains("wait")) out.wait = number(from, "wait", 0, 1e3, where);
    return out;
  }

  KernelFigures kernel(const json& from, const std::string& where) const {
    KernelFigures out;
    out.kernel = text(from, "kernel", where);
    read(from, out, kKernelMembers, where);
    for (const json& line : array(from, "rows", where)) {
      const std::string here = cat(where, ", row ", out.rows.size());
      tsr_row_cost row{};
      row.row_bytes = number(line, "row_bytes", 1, 1e9, here);
      row.reuse_bytes = number(line, "reuse_bytes", 1, 1e18, here);
      read(line, row, kRowMembers, here);
      out.rows.push_back(row);
    }
    check_grid(out.rows, where);
    return out;
  }

 private:
  static constexpr double kMost = 1e15;

  void check_grid(const std::vector<tsr_row_cost>& rows, const std::string& where) const {
    size_t columns = 1;
    while (columns < rows.size() && rows[columns].row_bytes == rows[0].row_bytes) ++columns;
    bool full = rows.size() % columns == 0;
    for (size_t i = 0; full && i < rows.size(); ++i) {
      const size_t line = i / columns, column = i % columns;
      full = rows[i].row_bytes == rows[line * columns].row_bytes && rows[i].reuse_bytes == rows[column].reuse_bytes &&
             (column == 0 || rows[i].reuse_bytes > rows[i - 1].reuse_bytes) &&
             (line == 0 || rows[i].row_bytes > rows[i - columns].row_bytes);
    }
    if (!full) bad(where, "\"rows\" is no full grid: every row_bytes needs the same reuse_bytes, both ascending");
  }

  const std::string& source_;
};

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
  for (const Stage& s : kStages) write(out["stages"][s.key], this->*(s.value), kStageMembers);
  for (const DenseCurve& c : kDenseCurves) out["dense"][c.key] = write(dense.*(c.value));
  for (const DenseStage& s : kDenseStages) write(out["dense"][s.key], dense.*(s.value), kStageMembers);
  return out.dump(1) + "\n";
}

Machine Machine::from_json(const std::string& text, const std::string& source) {
  const Reader reader(source);
  const auto root = config::parse_json(text, {source});
  const double format = reader.number(root, "tessera_machine", 1, 1e6, "");
  if (format > kMachineFormat) {
    reader.bad("", cat("its format is ", format, " and this program reads ", kMachineFormat,
                       ": it was written by a newer one"));
  }
  Machine m;
  m.name = reader.text(root, "name", "");
  m.device = reader.text(root, "device", "");
  m.measured = reader.field(root, "measured", "") == true;
  m.ranks = static_cast<int>(reader.number(root, "ranks", 1, 1e6, ""));
  m.threads = static_cast<int>(reader.number(root, "threads", 1, 4096, ""));
  for (const auto& k : reader.field(root, "kernels", "")) {
    m.kernels.push_back(reader.kernel(k, cat("kernel ", m.kernels.size())));
  }
  if (root.contains("intra_host")) m.intra_host = reader.link(root["intra_host"], "intra_host");
  if (root.contains("inter_host")) m.inter_host = reader.link(root["inter_host"], "inter_host");
  const auto& stages = reader.field(root, "stages", "");
  for (const Stage& s : kStages) {
    reader.read(reader.field(stages, s.key, "stages"), m.*(s.value), kStageMembers, cat("stage ", s.key));
  }
  const auto& dense = reader.field(root, "dense", "");
  for (const DenseCurve& c : kDenseCurves) m.dense.*(c.value) = reader.curve(dense, c.key, "dense");
  for (const DenseStage& s : kDenseStages) {
    if (!s.needed && !dense.contains(s.key)) continue;
    reader.read(reader.field(dense, s.key, "dense"), m.dense.*(s.value), kStageMembers, cat("dense, ", s.key));
  }
  return m;
}

}  // namespace tessera
