#include <algorithm>
#include <cmath>
#include <limits>

#include "serve/infer_inputs.h"
#include "serve/infer_json.h"
#include "serve/infer_tensors.h"
#include "serve/names.h"
#include "serve/protocol.h"
#include "serve/taken_values.h"
#include "tessera/abi/draft/reader.h"
#include "tessera/data.h"
#include "tessera/error.h"

namespace tessera::serve {
namespace {

void check_finite(std::string_view name, const float* data, size_t count, size_t per_sample) {
  for (size_t i = 0; i < count; ++i) {
    if (std::isfinite(data[i])) continue;
    refuse("input ", name, per_sample > 0 ? " of sample " : ", value ", per_sample > 0 ? i / per_sample : i,
           " is not a finite number");
  }
}

void check_lengths(std::string_view feature, std::span<const int32_t> lengths, size_t values) {
  int64_t sum = 0;
  for (size_t b = 0; b < lengths.size(); ++b) {
    if (lengths[b] < 0)
      refuse("input ", feature, ".lengths of sample ", b, " is ", lengths[b], "; it must be at least 0");
    sum += lengths[b];
  }
  if (sum != static_cast<int64_t>(values)) {
    refuse("input ", feature, ".lengths add up to ", sum, ", but ", feature, ".values has ", values, " ids");
  }
}

void check_batch(int64_t batch, int64_t most) {
  if (batch < 1) refuse("a request needs at least one sample");
  if (batch > most) refuse("a request of ", batch, " samples is too large: at most ", most);
}

// The number of samples, from the first tensor that tells it.
void take_batch(int64_t samples, const InferLimits& limits, std::string_view input, InferRequest& out) {
  if (out.batch == 0) {
    out.batch = samples;
    check_batch(out.batch, limits.max_samples);
  }
  if (samples != out.batch) refuse("input ", input, " has ", samples, " samples; the request has ", out.batch);
}

void read_dense(const ModelDescription& model, const InferLimits& limits, Tensors& tensors, InferRequest& out) {
  const size_t at = tensors.require({"dense", ""});
  tensors.append(at, "FP32", 2, out.dense);
  const std::span<const int64_t> shape = tensors[at].shape;
  if (shape[1] != model.dense_inputs) {
    refuse("input dense has ", shape[1], " values for each sample; model ", served_name(model, limits), " takes ",
           model.dense_inputs);
  }
  take_batch(shape[0], limits, "dense", out);
  check_finite("dense", out.dense.data(), out.dense.size(), static_cast<size_t>(model.dense_inputs));
}

// Dense columns as in files, where a value may be missing: NaN, or the column is absent. They are put into place once
// the request's features have told the number of samples.
class DenseColumns {
 public:
  explicit DenseColumns(const ColumnEncoding* columns) : columns_(columns) {
    if (columns == nullptr) return;
    names_ = columns->dense();
    vectors_ = columns->vectors();
  }
  // True if the request sends columns, and no complete dense tensor.
  bool are_in(const Tensors& tensors) const {
    const bool called_so = std::find(names_.begin(), names_.end(), "dense") != names_.end();
    return (!names_.empty() || !vectors_.empty()) && (called_so || !tensors.has({"dense", ""}, "FP32"));
  }
  void read(const InferLimits& limits, Tensors& tensors, InferRequest& out) {
    for (const std::string& name : names_) {
      std::vector<double>& values = values_.emplace_back();
      const ColumnConfig& column = *columns_->column(name);
      const bool required = !column.missing && column.take != "missing";
      const std::optional<size_t> at = required ? tensors.require({name, ""}) : tensors.find({name, ""});
      if (!at) continue;
      // A text column with another `take` holds written numbers; a request may also send these as numbers.
      const bool texts = column.take != "value" || tensors[*at].datatype == "BYTES";
      if (ColumnEncoding::type_of(column) == TSR_READER_TEXT && texts && !tensors[*at].taken)
        read_texts(name, *at, tensors, values);
      else
        tensors.append_numbers(*at, values);
      take_batch(std::ssize(values), limits, name, out);
      for (size_t i = 0; i < values.size(); ++i) {
        if (std::isinf(values[i]) || (required && std::isnan(values[i])))
          refuse("input ", name, " of sample ", i, " is not a finite number");
      }
    }
    for (const auto& [name, width] : vectors_) {
      std::vector<float>& values = of_vectors_.emplace_back();
      const bool required = !columns_->column(name)->missing;
      const std::optional<size_t> at = required ? tensors.require({name, ""}) : tensors.find({name, ""});
      if (!at) continue;
      tensors.append(*at, "FP32", 2, values);
      const std::span<const int64_t> shape = tensors[*at].shape;
      if (shape[1] != width)
        refuse("input ", name, " has ", shape[1], " values for each sample, but it is a vector of ", width);
      take_batch(shape[0], limits, name, out);
      check_finite(name, values.data(), values.size(), static_cast<size_t>(width));
    }
  }
  void lay_out(InferRequest& out) const {
    const auto width = static_cast<size_t>(columns_->dense_width());
    out.dense.resize(static_cast<size_t>(out.batch) * width);
    for (size_t k = 0; k < values_.size(); ++k) {
      for (size_t i = 0; i < static_cast<size_t>(out.batch); ++i) {
        const double value = values_[k].empty() ? none_of(names_[k]) : values_[k][i];
        const float input = columns_->dense_value(names_[k], value);
        if (!std::isfinite(input)) refuse("input ", names_[k], " of sample ", i, " is too large: ", value);
        out.dense[i * width + k] = input;
      }
    }
    size_t first = names_.size();
    for (size_t k = 0; k < of_vectors_.size(); ++k) {
      const std::vector<float>& values = of_vectors_[k];
      const auto each = static_cast<size_t>(vectors_[k].width);
      for (size_t i = 0; i < static_cast<size_t>(out.batch); ++i) {
        const auto to = out.dense.begin() + static_cast<int64_t>(i * width + first);
        if (values.empty())  // no sample has the vector
          std::fill_n(to, each, static_cast<float>(columns_->column(vectors_[k].name)->missing->number));
        else
          std::copy_n(values.begin() + static_cast<int64_t>(i * each), each, to);
      }
      first += each;
    }
  }

 private:
  // The substitute for a missing value.
  double none_of(const std::string& name) const {
    return columns_->column(name)->take == "missing" ? 1 : std::numeric_limits<double>::quiet_NaN();
  }
  void read_texts(const std::string& name, size_t at, const Tensors& tensors, std::vector<double>& values) const {
    Words words;
    tensors.append_words(at, words);
    for (size_t i = 0; i < words.present.size(); ++i) {
      const auto begin = static_cast<size_t>(words.ends[i]), end = static_cast<size_t>(words.ends[i + 1]);
      try {
        values.push_back(words.present[i]
                             ? columns_->dense_number(name, std::string_view(words.bytes).substr(begin, end - begin))
                             : none_of(name));
      } catch (const Error& e) {
        refuse("input ", name, " of sample ", i, ": ", e.what());
      }
    }
  }

  const ColumnEncoding* columns_;  // or null
  std::vector<std::string> names_;
  std::vector<std::vector<double>> values_;  // by name; empty if absent
  std::vector<ColumnEncoding::Vector> vectors_;
  std::vector<std::vector<float>> of_vectors_;
};

// The position of a feature's ids, lengths and weights in the flat arrays.
struct Place {
  size_t values = 0, ids = 0, lengths = 0, weights = 0;
  bool weighted = false;
};

void place_ids(const ColumnEncoding::Ids& ids, InferRequest& out, Place& place) {
  place = {out.values.size(), ids.values.size(), out.lengths.size(), out.weights.size(), !ids.weights.empty()};
  out.values.insert(out.values.end(), ids.values.begin(), ids.values.end());
  out.weights.insert(out.weights.end(), ids.weights.begin(), ids.weights.end());
  for (size_t b = 0; b + 1 < ids.begins.size(); ++b)
    out.lengths.push_back(static_cast<int32_t>(ids.begins[b + 1] - ids.begins[b]));
}

// Reads one feature's lists of values, whatever their type.
class FeatureReader {
 public:
  FeatureReader(const ModelDescription& model, const InferLimits& limits, Tensors& tensors, InferRequest& out)
      : model_(model), limits_(limits), tensors_(tensors), out_(out) {}

  Place read(const std::string& name) {
    const ColumnConfig* column = limits_.columns != nullptr ? limits_.columns->column(name) : nullptr;
    const int32_t type = column != nullptr ? ColumnEncoding::type_of(*column) : TSR_READER_INT64;
    if (type != TSR_READER_INT64 && !tensors_.has({name, ".rows"})) return read_values(name, type);
    const size_t at = tensors_.require({name, type == TSR_READER_INT64 ? ".values" : ".rows"});
    if (tensors_[at].datatype == "BYTES")
      refuse(
          "input ", tensors_[at].name, " holds texts, but model ", served_name(model_, limits_), " knows ",
          column == nullptr ? "no column of that name: send ids, INT64" : "numbers of rows there: send them as INT64");
    return read_ids(name, at);
  }

 private:
  Place read_ids(const std::string& name, size_t at) {
    Place place{out_.values.size(), 0, out_.lengths.size(), out_.weights.size(), false};
    tensors_.append(at, "INT64", 1, out_.values);
    place.ids = out_.values.size() - place.values;
    read_lengths(name, place.ids, out_.lengths);
    place.weighted = read_weights(name, place.ids, out_.weights);
    const std::span<int32_t> lengths(out_.lengths.data() + place.lengths, out_.lengths.size() - place.lengths);
    std::vector<bool> taken(place.ids, true);
    mark_taken(limits_, name, true, lengths, taken);
    leave_out(taken, place.weighted ? out_.weights.data() + place.weights : nullptr, lengths,
              out_.values.data() + place.values);
    place.ids = static_cast<size_t>(std::count(taken.begin(), taken.end(), true));
    out_.values.resize(place.values + place.ids);
    if (place.weighted) out_.weights.resize(place.weights + place.ids);
    return place;
  }

  // Reads values as in files.
  Place read_values(const std::string& name, int32_t type) {
    const size_t at = tensors_.require({name, ".values"});
    Words words;
    std::vector<double> numbers;
    if (type == TSR_READER_TEXT) {
      tensors_.append_words(at, words);
      spell(words, *limits_.columns->column(name), tensors_[at].datatype);
    } else {
      if (tensors_[at].datatype == "BYTES")
        refuse("input ", name, ".values holds texts, but model ", served_name(model_, limits_),
               " takes numbers there, not texts");
      tensors_.append_numbers(at, numbers);
      for (size_t i = 0; i < numbers.size(); ++i) {
        if (std::isinf(numbers[i])) refuse("input ", name, ".values, value ", i, " is not a finite number");
        words.present.push_back(!std::isnan(numbers[i]));
      }
    }
    std::vector<int32_t> lengths;
    std::vector<float> weights;
    read_lengths(name, words.present.size(), lengths);
    const bool weighted = read_weights(name, words.present.size(), weights);
    const ColumnConfig& column = *limits_.columns->column(name);
    mark_taken(limits_, name, false, lengths, words.present);
    if (column.take != "missing") leave_out_missing(words, numbers, lengths, weights);
    std::vector<int64_t> lists = {0};
    for (const int32_t length : lengths) lists.push_back(lists.back() + length);
    const std::vector<float> floats(numbers.begin(), numbers.end());
    tsr_reader_values values{};
    values.values = type == TSR_READER_TEXT      ? static_cast<const void*>(words.bytes.data())
                    : type == TSR_READER_FLOAT64 ? static_cast<const void*>(numbers.data())
                                                 : floats.data();
    values.texts = words.ends.data();
    values.lists = lists.data();
    values.weights = weighted ? weights.data() : nullptr;
    ColumnEncoding::Ids ids;
    try {
      limits_.columns->encode(name, std::ssize(lengths), values, ids);
    } catch (const Error& e) {
      refuse("input ", name, ".values: ", e.what());
    }
    Place place;
    place_ids(ids, out_, place);
    place.weighted = weighted;
    return place;
  }

  // Writes numbers in the way the column's texts are written.
  static void spell(Words& words, const ColumnConfig& column, std::string_view datatype) {
    if (datatype != "BYTES" && !column.decimal.empty())
      std::replace(words.bytes.begin(), words.bytes.end(), '.', column.decimal[0]);
  }
  // Removes the values that are not present, because they are not ids of their sample.
  static void leave_out_missing(Words& words, std::vector<double>& numbers, std::vector<int32_t>& lengths,
                                std::vector<float>& weights) {
    if (std::find(words.present.begin(), words.present.end(), false) == words.present.end()) return;
    size_t from = 0, to = 0;
    std::string bytes;
    std::vector<int64_t> ends = {0};
    for (int32_t& length : lengths) {
      const size_t last = from + static_cast<size_t>(length), first = to;
      for (; from < last; ++from) {
        if (!words.present[from]) continue;
        if (!numbers.empty()) numbers[to] = numbers[from];
        if (!weights.empty()) weights[to] = weights[from];
        if (words.ends.size() > 1) {
          bytes.append(words.bytes, static_cast<size_t>(words.ends[from]),
                       static_cast<size_t>(words.ends[from + 1] - words.ends[from]));
          ends.push_back(std::ssize(bytes));
        }
        ++to;
      }
      length = static_cast<int32_t>(to - first);
    }
    numbers.resize(std::min(to, numbers.size()));
    weights.resize(std::min(to, weights.size()));
    words.bytes = std::move(bytes);
    words.ends = std::move(ends);
  }

  void read_lengths(const std::string& name, size_t values, std::vector<int32_t>& lengths) {
    const size_t before = lengths.size();
    tensors_.append(tensors_.require({name, ".lengths"}), "INT32", 1, lengths);
    take_batch(std::ssize(lengths) - static_cast<int64_t>(before), limits_, str_cat(name, ".lengths"), out_);
    check_lengths(name, {lengths.data() + before, lengths.size() - before}, values);
  }

  // Returns false if there are none.
  bool read_weights(const std::string& name, size_t ids, std::vector<float>& weights) {
    if (!model_.is_weighted) return false;
    const std::optional<size_t> at = tensors_.find({name, ".weights"});
    if (!at) return false;
    const size_t before = weights.size();
    tensors_.append(*at, "FP32", 1, weights);
    if (weights.size() - before != ids)
      refuse("input ", name, ".weights has ", weights.size() - before, " weights for ", ids, " ids");
    check_finite(str_cat(name, ".weights"), weights.data() + before, ids, 0);
    return true;
  }

  const ModelDescription& model_;
  const InferLimits& limits_;
  Tensors& tensors_;
  InferRequest& out_;
};

// Computes the ids of a cross from those of its parts.
Place cross(const ColumnEncoding& columns, const ModelDescription& model, const std::string& name,
            const std::vector<Place>& places, InferRequest& out) {
  const std::vector<std::string>& crossed = columns.column(name)->cross;
  std::vector<ColumnEncoding::Ids> parts(crossed.size());
  std::vector<const ColumnEncoding::Ids*> pointers;
  for (size_t p = 0; p < crossed.size(); ++p) {
    const auto feature = std::find_if(model.features.begin(), model.features.end(),
                                      [&](const ModelFeature& f) { return f.name == crossed[p]; });
    if (feature == model.features.end())
      refuse("input ", name, ".values is missing: it is a cross of \"", crossed[p],
             "\", which the model does not take");
    const Place& place = places[static_cast<size_t>(feature - model.features.begin())];
    const auto first = out.values.begin() + static_cast<int64_t>(place.values);
    parts[p].values.assign(first, first + static_cast<int64_t>(place.ids));
    parts[p].begins.assign(1, 0);
    for (size_t b = 0; b < static_cast<size_t>(out.batch); ++b)
      parts[p].begins.push_back(parts[p].begins.back() + out.lengths[place.lengths + b]);
    pointers.push_back(&parts[p]);
  }
  for (size_t b = 0; b < static_cast<size_t>(out.batch); ++b) {  // otherwise a small request could become a large one
    const auto lists = std::count_if(parts.begin(), parts.end(), [&](const ColumnEncoding::Ids& part) {
      return part.begins[b + 1] - part.begins[b] > 1;
    });
    if (lists > 1)
      refuse("sample ", b, " has several ids of ", lists, " columns that \"", name,
             "\" is a cross of, but only one of them may have several");
  }
  ColumnEncoding::Ids ids;
  columns.cross(name, pointers, ids);
  Place place;
  place_ids(ids, out, place);
  return place;
}

std::vector<Place> read_features(const ModelDescription& model, const InferLimits& limits, Tensors& tensors,
                                 InferRequest& out) {
  std::vector<Place> places(model.features.size());
  std::vector<size_t> crosses;  // crosses that the request does not give; made once all other features are there
  std::vector<size_t> absent;   // features without ids
  FeatureReader reader(model, limits, tensors, out);
  for (size_t f = 0; f < places.size(); ++f) {
    const std::string& name = model.features[f].name;
    const ColumnConfig* column = limits.columns != nullptr ? limits.columns->column(name) : nullptr;
    if (column != nullptr && !column->cross.empty() && !tensors.has({name, ".values"}, "INT64"))
      crosses.push_back(f);
    else if (!model.features[f].needed && !tensors.has({name, ".values"}) && !tensors.has({name, ".lengths"}))
      absent.push_back(f);
    else
      places[f] = reader.read(name);
  }
  for (const size_t f : absent) {
    places[f] = {out.values.size(), 0, out.lengths.size(), out.weights.size()};
    out.lengths.insert(out.lengths.end(), static_cast<size_t>(out.batch), 0);
  }
  for (const size_t f : crosses) places[f] = cross(*limits.columns, model, model.features[f].name, places, out);
  return places;
}

// For example: 2 features "a" and "b".
std::string counted(const std::vector<std::string>& names, const char* what) {
  return str_cat(names.size(), ' ', what, names.size() == 1 ? " " : "s ", listed(names));
}

// Throws a message with the inputs that may be sent, as in the model's metadata.
[[noreturn]] void refuse_unused(const RequestTensor& tensor, const ModelDescription& model, const InferLimits& limits) {
  auto dense = limits.columns != nullptr ? limits.columns->dense() : std::vector<std::string>();
  if (limits.columns != nullptr) {
    for (const auto& [name, width] : limits.columns->vectors()) dense.push_back(name);
  }
  std::vector<std::string> features;
  for (const ModelFeature& feature : model.features) {
    const ColumnConfig* const column = limits.columns != nullptr ? limits.columns->column(feature.name) : nullptr;
    // otherwise computed from other columns
    if (column == nullptr || column->cross.empty()) features.push_back(feature.name);
  }
  std::string takes;
  if (!dense.empty())
    takes = counted(dense, "dense column") + ", and ";
  else if (model.dense_inputs > 0)
    takes = "dense and ";
  refuse("input \"", shown(tensor.name), "\" is there twice or unknown; model ", served_name(model, limits), " takes ",
         takes, "NAME.values", model.is_weighted ? ", " : " and ", "NAME.lengths",
         model.is_weighted ? " and NAME.weights" : "", " of its ", counted(features, "feature"));
}

// The output that a request calls by this name. "score" is the first of all, if no head has that name.
size_t find_output(const ModelDescription& model, std::string_view name) {
  const auto called_so = [&](const ModelOutput& output) { return output.name == name; };
  const auto at = std::find_if(model.outputs.begin(), model.outputs.end(), called_so);
  if (at != model.outputs.end()) return static_cast<size_t>(at - model.outputs.begin());
  if (name == kScore) return 0;
  std::vector<std::string> known;
  for (size_t o = 0; o < model.outputs.size(); ++o) known.emplace_back(output_name(model, o));
  const bool has_score = std::find(known.begin(), known.end(), kScore) != known.end();
  refuse("output \"", shown(name), "\" is unknown; there ", known.size() == 1 ? "is " : "are ", listed(known),
         has_score ? "" : ", and \"score\" is the first of them");
}

void take_outputs(const ModelDescription& model, const TensorRequest& request, InferRequest& out) {
  out.binary_output = request.binary_output;
  const bool one = model.outputs.size() == 1 && request.outputs.size() == 1;
  for (const TensorRequest::Output& wanted : request.outputs) {
    const size_t output = find_output(model, wanted.name);
    const bool binary = wanted.binary.value_or(out.binary_output);
    if (one && wanted.name == kScore)
      out.binary_output = binary;  // all outputs, by their own names
    else
      out.outputs.push_back({output, std::string(wanted.name), binary});
  }
}

// Bounds on the numbers of tensors, which follow from the model.
InferJsonLimits most_tensors(const ModelDescription& model, const InferLimits& limits) {
  const ColumnEncoding* const columns = limits.columns;
  const size_t dense = columns != nullptr ? columns->dense().size() + columns->vectors().size() : 0;
  return {3 * model.features.size() + 1 + dense, model.outputs.size()};
}

}  // namespace

InferRequest parse_infer(const ModelDescription& model, std::string_view body, std::optional<size_t> json_bytes,
                         const InferLimits& limits) {
  if (json_bytes && *json_bytes > body.size()) {
    refuse("Inference-Header-Content-Length is ", *json_bytes, ", but the request has ", body.size(), " bytes");
  }
  const size_t split = json_bytes.value_or(body.size());
  InferJson json = read_infer_json(body.substr(0, split), most_tensors(model, limits));
  return parse_tensors(model, json.view(body.substr(split)), limits);
}

void check_numbers(const ModelDescription& model, const InferLimits& limits, size_t inputs, size_t outputs) {
  check_numbers(inputs, outputs, most_tensors(model, limits));
}

InferRequest parse_tensors(const ModelDescription& model, const TensorRequest& request, const InferLimits& limits) {
  try {
    return take_tensors(model, request, limits);
  } catch (const MissingInput& missing) {
    refuse(missing_text(model, missing.name, request, limits));
  }
}

InferRequest take_tensors(const ModelDescription& model, const TensorRequest& request, const InferLimits& limits) {
  Tensors tensors(request);
  DenseColumns dense(limits.columns);
  InferRequest out;
  const bool columns = dense.are_in(tensors);
  if (columns)
    dense.read(limits, tensors, out);
  else if (model.dense_inputs > 0)
    read_dense(model, limits, tensors, out);
  const std::vector<Place> places = read_features(model, limits, tensors, out);
  if (columns) dense.lay_out(out);
  if (const RequestTensor* tensor = tensors.unused()) refuse_unused(*tensor, model, limits);
  if (out.batch == 0) refuse("model ", served_name(model, limits), " has no inputs");
  take_outputs(model, request, out);
  const auto batch = static_cast<size_t>(out.batch);
  for (const Place& p : places) {
    out.features.push_back({{out.values.data() + p.values, p.ids},
                            {out.lengths.data() + p.lengths, batch},
                            {out.weights.data() + p.weights, p.weighted ? p.ids : 0}});
  }
  out.id = request.id;
  if (request.timeout_us && *request.timeout_us > 0) {
    out.timeout = std::chrono::microseconds(std::min<int64_t>(*request.timeout_us, int64_t{3600} * 1000 * 1000));
  }
  return out;
}

}  // namespace tessera::serve
