#include "serve/json_text.h"
#include "serve/score_rows.h"
#include "tessera/data.h"

namespace tessera::serve {
namespace {

struct Scored {
  size_t output;
  std::string name;
};

// The name of an output. The only output of a model predicts a label, whose name is used.
std::string name_of(const ModelDescription& model, const ColumnEncoding* columns, size_t output) {
  if (model.outputs.size() > 1) return model.outputs[output].name;
  const std::string& label = model.outputs[output].label;
  if (label != ModelOutput().label) return label;
  const std::vector<std::string> labels = columns != nullptr ? columns->labels() : std::vector<std::string>();
  return labels.size() == 1 ? labels[0] : std::string(kScore);
}

void add_values(std::string& out, std::span<const float> values) {
  if (values.size() != 1) out += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    append_number(out, values[i]);
  }
  if (values.size() != 1) out += ']';
}

void add_scores(std::string& out, const ModelDescription& model, const std::vector<Scored>& wanted, size_t row,
                std::span<const std::span<const float>> values) {
  out += '{';
  for (const Scored& scored : wanted) {
    if (&scored != wanted.data()) out += ',';
    const auto width = static_cast<size_t>(model.outputs[scored.output].width);
    out += json_string(scored.name) + ':';
    add_values(out, values[scored.output].subspan(row * width, width));
  }
  out += '}';
}

// Writes the best items first.
void add_items(std::string& out, const ModelDescription& model, size_t row,
               std::span<const std::span<const float>> values) {
  const auto width = static_cast<size_t>(model.outputs[0].width);
  out += '[';
  for (size_t i = row * width; i < (row + 1) * width; ++i) {
    if (i > row * width) out += ',';
    out += "{\"item\":" + std::to_string(static_cast<int64_t>(values[1][i])) + ",\"score\":";
    append_number(out, values[0][i]);
    out += '}';
  }
  out += ']';
}

}  // namespace

std::string render_scores(const ModelDescription& model, std::string_view name, const ColumnEncoding* columns,
                          const InferRequest& request, std::span<const std::span<const float>> values) {
  std::vector<Scored> wanted;
  for (const WantedOutput& w : request.outputs) wanted.push_back({w.output, w.name});
  for (size_t o = 0; request.outputs.empty() && o < model.outputs.size(); ++o)
    wanted.push_back({o, name_of(model, columns, o)});
  std::string out = "{\"model\":" + json_string(name) + ",\"version\":" + json_string(model.version);
  if (!request.id.empty()) out += ",\"id\":" + json_string(request.id);
  out += answers_items(model) ? ",\"items\":[" : ",\"scores\":[";
  for (size_t row = 0; row < static_cast<size_t>(request.batch); ++row) {
    if (row > 0) out += ',';
    if (answers_items(model))
      add_items(out, model, row, values);
    else
      add_scores(out, model, wanted, row, values);
  }
  return out + "]}";
}

}  // namespace tessera::serve
