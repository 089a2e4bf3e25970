#include "columnar/arrow_type.h"

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

namespace tessera_readers {
namespace {

using Storage = ArrowValues::Storage;
using Meaning = ArrowValues::Meaning;
using List = ArrowType::List;

struct OneLetter {
  char format;
  Storage storage;
  const char* name;
};

constexpr std::array<OneLetter, 17> kOneLetter = {{{'n', Storage::kNull, "null"},
                                                   {'b', Storage::kBool, "bool"},
                                                   {'c', Storage::kInt8, "int8"},
                                                   {'C', Storage::kUInt8, "uint8"},
                                                   {'s', Storage::kInt16, "int16"},
                                                   {'S', Storage::kUInt16, "uint16"},
                                                   {'i', Storage::kInt32, "int32"},
                                                   {'I', Storage::kUInt32, "uint32"},
                                                   {'l', Storage::kInt64, "int64"},
                                                   {'L', Storage::kUInt64, "uint64"},
                                                   {'e', Storage::kFloat16, "halffloat"},
                                                   {'f', Storage::kFloat32, "float"},
                                                   {'g', Storage::kFloat64, "double"},
                                                   {'u', Storage::kText, "string"},
                                                   {'U', Storage::kLargeText, "large_string"},
                                                   {'z', Storage::kText, "binary"},
                                                   {'Z', Storage::kLargeText, "large_binary"}}};

const OneLetter* one_letter(std::string_view format) {
  for (const OneLetter& one : kOneLetter) {
    if (format.size() == 1 && format[0] == one.format) return &one;
  }
  return nullptr;
}

// Takes the whole number at the start of a text, up to a comma; `text` becomes the rest after the comma.
bool take_number(std::string_view& text, int64_t& out) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (code != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (text.starts_with(',')) text.remove_prefix(1);
  return true;
}

struct Decimal {
  int64_t precision = 0, scale = 0, bits = 128;
};

// `d:precision,scale` and `d:precision,scale,bits`.
std::optional<Decimal> decimal_of(std::string_view format) {
  if (!format.starts_with("d:")) return std::nullopt;
  format.remove_prefix(2);
  Decimal out;
  if (!take_number(format, out.precision) || !take_number(format, out.scale)) return std::nullopt;
  if (!format.empty() && !take_number(format, out.bits)) return std::nullopt;
  constexpr int64_t kMostScale = 1000;
  const bool known = (out.bits == 32 || out.bits == 64 || out.bits == 128 || out.bits == 256) &&
                     out.scale >= -kMostScale && out.scale <= kMostScale;
  return known ? std::optional(out) : std::nullopt;
}

// How many of a unit are in a second; 0 if the letter is not a unit.
int64_t units_per_second(char unit) {
  return unit == 's' ? 1 : unit == 'm' ? 1000 : unit == 'u' ? 1000000 : unit == 'n' ? 1000000000 : 0;
}

bool read_time(std::string_view format, ArrowValues& out) {
  if (format.size() < 3 || format[0] != 't') return false;
  const char kind = format[1], unit = format[2];
  if (format == "tdD") {
    out.storage = Storage::kInt32;
    out.meaning = Meaning::kDate;
    return true;
  }
  out.per_second = units_per_second(unit);
  if (out.per_second == 0) return false;
  out.storage = kind == 't' && (unit == 's' || unit == 'm') ? Storage::kInt32 : Storage::kInt64;
  if (format == "tdm" || (kind == 's' && format.size() > 3 && format[3] == ':'))
    out.meaning = Meaning::kInstant;
  else if (kind == 't' && format.size() == 3)
    out.meaning = Meaning::kTimeOfDay;
  else if (kind == 'D' && format.size() == 3)
    out.meaning = Meaning::kDuration;
  else
    return false;
  return true;
}

bool read_plain(std::string_view format, ArrowValues& out) {
  if (const OneLetter* one = one_letter(format)) {
    out.storage = one->storage;
    return true;
  }
  if (format == "vu" || format == "vz") {
    out.storage = Storage::kTextView;
    return true;
  }
  if (const auto decimal = decimal_of(format)) {
    out.storage = Storage::kDecimal;
    out.width = decimal->bits / 8;
    out.scale = static_cast<int32_t>(decimal->scale);
    return true;
  }
  if (format.starts_with("w:")) {
    format.remove_prefix(2);
    out.storage = Storage::kFixedText;
    return take_number(format, out.width) && out.width >= 0;
  }
  return read_time(format, out);
}

// Unwraps dictionaries and runs. Null if their indices have an invalid type.
const ArrowSchema* unwrapped(const ArrowSchema& schema, std::vector<ArrowValues::Wrap>& wraps) {
  const ArrowSchema* at = &schema;
  for (;;) {
    const bool runs = std::string_view(at->format) == "+r";
    if (runs ? at->n_children != 2 : at->dictionary == nullptr) return runs ? nullptr : at;
    const OneLetter* numbers = one_letter(runs ? at->children[0]->format : at->format);
    if (numbers == nullptr || numbers->storage < Storage::kInt8 || numbers->storage > Storage::kUInt64) return nullptr;
    wraps.push_back({runs, numbers->storage});
    at = runs ? at->children[1] : at->dictionary;
  }
}

std::optional<ArrowValues> values_of(const ArrowSchema& schema) {
  ArrowValues out;
  const ArrowSchema* const inner = unwrapped(schema, out.wraps);
  return inner != nullptr && read_plain(inner->format, out) ? std::optional(out) : std::nullopt;
}

std::string_view item_name(const ArrowSchema& schema) { return schema.name != nullptr ? schema.name : ""; }

std::string fields_of(const ArrowSchema& schema) {
  std::string out;
  for (int64_t i = 0; i < schema.n_children; ++i) {
    const ArrowSchema& child = *schema.children[i];
    ((out += i == 0 ? "" : ", ") += item_name(child)) += ": ";
    out += arrow_type_name(child);
  }
  return out;
}

std::string nested_name(const ArrowSchema& schema, std::string_view format) {
  constexpr std::array<std::pair<std::string_view, const char*>, 9> kNested = {{{"+l", "list"},
                                                                                {"+L", "large_list"},
                                                                                {"+vl", "list_view"},
                                                                                {"+vL", "large_list_view"},
                                                                                {"+s", "struct"},
                                                                                {"+r", "run_end_encoded"},
                                                                                {"+ud", "dense_union"},
                                                                                {"+us", "sparse_union"},
                                                                                {"+w", "fixed_size_list"}}};
  if (format == "+m" && schema.n_children == 1 && schema.children[0]->n_children == 2) {
    const ArrowSchema& pair = *schema.children[0];
    return "map<" + arrow_type_name(*pair.children[0]) + ", " + arrow_type_name(*pair.children[1]) + ">";
  }
  const size_t colon = format.find(':');
  for (const auto& [begin, name] : kNested) {
    if (format.substr(0, colon) != begin) continue;
    const std::string size = begin == "+w" ? "[" + std::string(format.substr(colon + 1)) + "]" : "";
    return std::string(name) + "<" + fields_of(schema) + ">" + size;
  }
  return {};
}

std::string time_name(std::string_view format) {
  if (format == "tdD") return "date32[day]";
  if (format == "tdm") return "date64[ms]";
  if (format == "tiM") return "month_interval";
  if (format == "tiD") return "day_time_interval";
  if (format == "tin") return "month_day_nano_interval";
  ArrowValues time;
  if (!read_time(format, time)) return {};
  const char unit_letter = format[2];
  const std::string unit = unit_letter == 's' ? "s" : std::string(1, unit_letter) + "s";
  if (format[1] == 'D') return "duration[" + unit + "]";
  if (format[1] == 't') return (time.storage == Storage::kInt32 ? "time32[" : "time64[") + unit + "]";
  const std::string_view zone = format.substr(4);
  return "timestamp[" + unit + (zone.empty() ? "" : ", tz=" + std::string(zone)) + "]";
}

}  // namespace

std::optional<ArrowType> ArrowType::of(const ArrowSchema& schema) {
  ArrowType type;
  const ArrowSchema* const rows = unwrapped(schema, type.list_wraps);
  if (rows == nullptr) return std::nullopt;
  std::string_view format = rows->format;
  if (format == "+l" || format == "+m")
    type.list = List::kList;
  else if (format == "+L")
    type.list = List::kLargeList;
  else if (format == "+vl")
    type.list = List::kListView;
  else if (format == "+vL")
    type.list = List::kLargeListView;
  else if (format.starts_with("+w:"))
    type.list = List::kFixedList;
  if (type.list == List::kNone) {
    std::optional<ArrowValues> values = values_of(schema);
    if (!values) return std::nullopt;
    type.list_wraps.clear();
    type.values = std::move(*values);
    return type;
  }
  if (type.list == List::kFixedList) {
    format.remove_prefix(3);
    if (!take_number(format, type.list_size) || type.list_size < 0) return std::nullopt;
  }
  if (rows->n_children != 1) return std::nullopt;
  const ArrowSchema& items = *rows->children[0];
  const bool pairs = std::string_view(items.format) == "+s";
  if (pairs && items.n_children != 2) return std::nullopt;
  std::optional<ArrowValues> values = values_of(pairs ? *items.children[0] : items);
  if (pairs) type.weight = values_of(*items.children[1]);
  if (!values || (pairs && (!type.weight || !type.weight->is_number()))) return std::nullopt;
  type.values = std::move(*values);
  return type;
}

std::string arrow_type_name(const ArrowSchema& schema) {
  const std::string_view format = schema.format;
  std::string out;
  if (schema.dictionary != nullptr) {
    const OneLetter* indices = one_letter(format);
    return "dictionary<values=" + arrow_type_name(*schema.dictionary) +
           ", indices=" + (indices != nullptr ? indices->name : std::string(format)) + ">";
  }
  if (const OneLetter* one = one_letter(format)) return one->name;
  if (format == "vu") return "string_view";
  if (format == "vz") return "binary_view";
  if (format.starts_with("w:")) return "fixed_size_binary[" + std::string(format.substr(2)) + "]";
  if (const auto decimal = decimal_of(format))
    return "decimal" + std::to_string(decimal->bits) + "(" + std::to_string(decimal->precision) + ", " +
           std::to_string(decimal->scale) + ")";
  out = format.starts_with('+') ? nested_name(schema, format) : time_name(format);
  return out.empty() ? "\"" + std::string(format) + "\" (of Arrow's C interface)" : out;
}

}  // namespace tessera_readers
