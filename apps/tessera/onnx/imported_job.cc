#include "onnx/imported_job.h"

#include <algorithm>
#include <cstdio>

#include "checkpoint/safetensors.h"
#include "onnx/import_model.h"
#include "tessera/error.h"
#include "wrapped.h"

namespace tessera::cli {
namespace {

std::string quoted(const std::string& text) { return '"' + text + '"'; }

std::string toml(const nlohmann::ordered_json& value) {
  if (value.is_string()) return quoted(value.get<std::string>());
  if (value.is_number_float()) {
    char text[40];
    std::snprintf(text, sizeof(text), "%.9g", value.get<double>());
    const std::string out = text;
    return out.find_first_of(".en") == std::string::npos ? out + ".0" : out;
  }
  if (!value.is_structured()) return value.dump();
  std::string out;
  for (const auto& [key, item] : value.items())
    out += str_cat(out.empty() ? "" : ", ", value.is_array() ? "" : key + " = ", toml(item));
  return value.is_array() ? '[' + out + ']' : "{ " + out + " }";
}

std::string table_text(const ImportedTable& table, size_t index) {
  return str_cat("[[table]]\nname = ", quoted(table.name), "\nfeatures = [\"c", index,
                 "\"]                             # a column of the data\nembedding_dim = ", table.dim, '\n',
                 table.sequence ? "pooling = \"none\"                            # a sequence\n\n" : "\n");
}

std::string layer_text(const ImportedLayer& layer) {
  std::vector<std::string> inputs;
  for (const ValuePart& input : layer.inputs) inputs.push_back(input.name);
  std::string out = str_cat("[[layer]]\nname = ", quoted(layer.name), "\ntype = ", quoted(layer.type),
                            "\ninputs = ", toml(inputs), '\n');
  if (!layer.options.empty()) out += "options = " + toml(layer.options) + '\n';
  return out + '\n';
}

std::string head_text(const ImportedHead& head) {
  std::string out = str_cat("[[head]]\nname = ", quoted(head.name), "\ninput = ", quoted(head.input),
                            "\nloss = ", quoted(head.loss), "\nlabel = ", quoted(head.label), '\n');
  if (head.weight != 1) out += str_cat("weight = ", head.weight, "                                # only predicted\n");
  return out + '\n';
}

}  // namespace

bool has_parameters(const std::vector<ImportedLayer>& layers) {
  return std::any_of(layers.begin(), layers.end(), [](const ImportedLayer& l) { return !l.parameters.empty(); });
}

std::string job_text(const ImportedJob& job) {
  const bool weights = has_parameters(job.layers);
  std::string out = wrapped(str_cat("The layers of ", job.source, ", by tessera model import. This trains them",
                                    weights ? " from the weights that they have there:" : ":"),
                            "# ", "# ");
  out += str_cat("#   tessera train --config ", job.directory, '/', kImportedJob,
                 weights ? str_cat(" --start ", job.directory, '/', kImportedWeights) : "", "\n\n");
  for (size_t t = 0; t < job.tables.size(); ++t) out += table_text(job.tables[t], t);
  for (const ImportedLayer& layer : job.layers) out += layer_text(layer);
  for (const ImportedHead& head : job.heads) out += head_text(head);
  out += R"([table_defaults]
optimizer = { name = "exact_rowwise_adagrad", learning_rate = 0.05, eps = 1e-8 }

[dense_optimizer]
name = "adam"
learning_rate = 0.001

# This job trains on generated data. docs/data.md has the readers for yours.
[data]
reader = "synthetic"
)";
  out += str_cat("columns = ", job.tables.size(), "\nrows = [");
  for (size_t t = 0; t < job.tables.size(); ++t) out += t > 0 ? ", 1000" : "1000";
  out += "]\n";
  if (std::any_of(job.tables.begin(), job.tables.end(), [](const ImportedTable& t) { return t.sequence; })) {
    out += "pooling = [";  // ids of a sample
    for (size_t t = 0; t < job.tables.size(); ++t) out += str_cat(t > 0 ? ", " : "", job.tables[t].sequence ? 5 : 1);
    out += "]\n";
  }
  if (job.dense > 0) out += str_cat("dense = ", job.dense, '\n');
  if (job.labels > 1) out += str_cat("labels = ", job.labels, '\n');
  return out + "samples = 20000\ntest_samples = 5000\nbatch = 256\n";
}

void write_parameters(const std::string& file, const std::vector<ImportedLayer>& layers) {
  checkpoint::StoredTensors stored;
  std::map<std::string, Tensor> values;
  for (const ImportedLayer& layer : layers) {
    for (const auto& [name, tensor] : layer.parameters) {
      const std::string full = str_cat(layer.name, '.', name);
      stored[full] = {tensor.dtype(), {tensor.shape().begin(), tensor.shape().end()}, 0};
      values[full] = tensor;
    }
  }
  checkpoint::SafetensorsWriter writer(file, stored);
  for (const auto& [name, tensor] : values) writer.write(name, tensor);
  writer.file().sync();
}

}  // namespace tessera::cli
