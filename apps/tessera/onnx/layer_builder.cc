#include "onnx/layer_builder.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <numeric>

#include "tessera/error.h"

namespace tessera::cli {

int64_t ImportValue::width() const {
  return std::accumulate(parts.begin(), parts.end(), int64_t{0},
                         [](int64_t sum, const ValuePart& part) { return sum + part.width; });
}

bool ImportValue::is_uniform(size_t first, size_t columns) const {
  for (size_t c = first + 1; c < first + columns; ++c) {
    if (scale_at(c) != scale_at(first) || shift_at(c) != shift_at(first)) return false;
  }
  return true;
}

std::string layer_name_of(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool allowed = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
    if (allowed || (!out.empty() && out.back() != '_')) out += allowed ? c : '_';
  }
  while (!out.empty() && out.back() == '_') out.pop_back();
  return out;
}

std::string LayerBuilder::fresh_name(const std::string& wanted) {
  const std::string base = wanted.empty() ? "layer" : wanted;
  std::string name = base;
  for (int number = 2; !taken_.insert(name).second; ++number) name = str_cat(base, '_', number);
  return name;
}

ImportValue LayerBuilder::add(const std::string& wanted, ImportedLayer layer, int64_t width) {
  layer.name = fresh_name(layer_name_of(wanted));
  ImportValue out{.parts = {{layer.name, width}}};
  layers_.push_back(std::move(layer));
  return out;
}

const ImportedLayer* LayerBuilder::maker(const std::string& name) const {
  const std::string layer = name.substr(0, name.find(':'));
  const auto found =
      std::find_if(layers_.begin(), layers_.end(), [&](const ImportedLayer& l) { return l.name == layer; });
  return found == layers_.end() ? nullptr : &*found;
}

ImportValue LayerBuilder::linear(const std::string& wanted, const ImportValue& x, std::vector<double> weight,
                                 std::vector<double> bias, const std::string& node) {
  const auto in = static_cast<size_t>(x.width()), out = weight.size() / in;
  if (!x.shift.empty() && bias.empty()) bias.assign(out, 0);
  for (size_t o = 0; o < out; ++o) {
    for (size_t i = 0; i < in; ++i) {
      double& w = weight[o * in + i];
      if (!x.shift.empty()) bias[o] += w * x.shift[i];
      w *= x.scale_at(i);
    }
  }
  ImportedLayer layer{.type = "linear", .inputs = x.parts, .options = {{"width", out}}};
  const auto tensor = [](const std::vector<double>& values, const Shape& shape) {
    return Tensor::from(std::span<const float>(std::vector<float>(values.begin(), values.end())), shape);
  };
  layer.parameters["weight"] = tensor(weight, {static_cast<int64_t>(out), static_cast<int64_t>(in)});
  if (bias.empty()) layer.options["bias"] = false;
  if (!bias.empty()) layer.parameters["bias"] = tensor(bias, {static_cast<int64_t>(out)});
  layer.node = node;
  return add(wanted, std::move(layer), static_cast<int64_t>(out));
}

ImportValue LayerBuilder::scaled(ImportValue x, const std::vector<double>& scale, const std::vector<double>& shift,
                                 const std::string& node) {
  const auto width = static_cast<size_t>(x.width());
  ImportedLayer* const before =
      x.sole && x.parts.size() == 1 ? const_cast<ImportedLayer*>(maker(x.parts[0].name)) : nullptr;
  if (before != nullptr && before->type == "linear") {
    float* const weight = before->parameters.at("weight").data<float>();
    const size_t in = static_cast<size_t>(before->parameters.at("weight").size(1));
    if (!before->parameters.contains("bias")) {
      before->parameters["bias"] = Tensor::zeros({static_cast<int64_t>(width)});
      before->options.erase("bias");
    }
    float* const bias = before->parameters.at("bias").data<float>();
    for (size_t o = 0; o < width; ++o) {
      for (size_t i = 0; i < in; ++i) weight[o * in + i] = static_cast<float>(weight[o * in + i] * scale[o]);
      bias[o] = static_cast<float>(bias[o] * scale[o] + shift[o]);
    }
    return x;
  }
  std::vector<double> all_scale(width), all_shift(width);
  for (size_t c = 0; c < width; ++c) {
    all_scale[c] = x.scale_at(c) * scale[c];
    all_shift[c] = x.shift_at(c) * scale[c] + shift[c];
  }
  const auto all = [](const std::vector<double>& values, double same) {
    return std::all_of(values.begin(), values.end(), [&](double v) { return v == same; });
  };
  x.scale = all(all_scale, 1) ? std::vector<double>{} : all_scale;
  x.shift = all(all_shift, 0) ? std::vector<double>{} : all_shift;
  x.constants_of = node;
  return x;
}

ImportValue LayerBuilder::plain(const ImportValue& x) {
  if (x.is_plain()) return x;
  ImportValue out = x;
  out.scale.clear(), out.shift.clear();
  out.sole = false;
  size_t first = 0;
  for (ValuePart& part : out.parts) {
    const auto width = static_cast<size_t>(part.width);
    if (!x.is_uniform(first, width))
      fail(Code::kUnimplemented, file_, ": ", x.constants_of, " has another constant for each of ", width,
           " values, which only a linear layer after it could take over: the layers that we have know one number");
    const double factor = x.scale_at(first), offset = x.shift_at(first);
    first += width;
    if (factor == 1 && offset == 0) continue;
    const std::string key =
        str_cat(part.name, ' ', std::bit_cast<uint64_t>(factor), ' ', std::bit_cast<uint64_t>(offset));
    if (!affines_.contains(key)) {
      ImportedLayer layer{.type = "affine", .inputs = {part}};
      if (factor != 1) layer.options["factor"] = factor;
      if (offset != 0) layer.options["offset"] = offset;
      layer.node = x.constants_of;
      affines_[key] = add("affine", std::move(layer), part.width).parts[0].name;
    }
    part.name = affines_[key];
  }
  return out;
}

std::string LayerBuilder::single(const ImportValue& x) {
  const ImportValue value = plain(x);
  if (value.parts.size() == 1) return value.parts[0].name;
  std::string key;
  for (const ValuePart& part : value.parts) key += part.name + ' ';
  if (!concats_.contains(key)) {
    ImportedLayer layer{.type = "concat", .inputs = value.parts};
    concats_[key] = add("concat", std::move(layer), value.width()).parts[0].name;
  }
  return concats_[key];
}

ImportValue LayerBuilder::split(const ValuePart& part, int64_t first, int64_t width) {
  ImportedLayer layer{.type = "split_columns", .inputs = {part}};
  std::vector<int64_t> widths;
  if (first > 0) widths.push_back(first);
  widths.push_back(width);
  if (first + width < part.width) widths.push_back(part.width - first - width);
  layer.options["widths"] = widths;
  ImportValue out = add("columns", std::move(layer), width);
  if (first > 0) out.parts[0].name += ":1";
  return out;
}

ImportValue LayerBuilder::columns(const ImportValue& x, int64_t first, int64_t width) {
  ImportValue out{.constants_of = x.constants_of};
  int64_t begin = 0;
  for (const ValuePart& part : x.parts) {
    const int64_t from = std::max<int64_t>(0, first - begin), to = std::min(part.width, first + width - begin);
    begin += part.width;
    if (from >= to) continue;
    out.parts.push_back(to - from == part.width ? part : split(part, from, to - from).parts[0]);
  }
  const auto cut = [&](const std::vector<double>& of) {
    return of.empty() ? of : std::vector<double>(of.begin() + first, of.begin() + first + width);
  };
  out.scale = cut(x.scale), out.shift = cut(x.shift);
  return out;
}

void drop_unused_layers(std::vector<ImportedLayer>& layers, const std::vector<ImportedHead>& heads,
                        const std::string& file) {
  std::set<std::string> used;
  for (const ImportedHead& head : heads) used.insert(head.input.substr(0, head.input.find(':')));
  std::vector<ImportedLayer> kept;
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {  // each is after those that it takes
    if (!used.contains(layer->name)) continue;
    if (layer->is_step())
      fail(Code::kUnimplemented, file, ": ", layer->node, " has no counterpart among the layers of docs/layers.md");
    for (const ValuePart& input : layer->inputs) used.insert(input.name.substr(0, input.name.find(':')));
    kept.push_back(std::move(*layer));
  }
  std::reverse(kept.begin(), kept.end());
  layers = std::move(kept);
}

}  // namespace tessera::cli
