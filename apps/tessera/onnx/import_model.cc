#include "onnx/import_model.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "onnx/import_axes.h"
#include "onnx/imported_job.h"
#include "onnx/importer.h"
#include "tessera/layer_graph.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMostTasks = 64;  // of one output

onnx::ModelProto read_onnx(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) fail(Code::kNotFound, "cannot open ", file, ": ", std::generic_category().message(errno));
  onnx::ModelProto out;
  if (!out.ParseFromIstream(&in) || !out.has_graph() || out.graph().node_size() == 0)
    fail(Code::kInvalidArgument, file, " is no ONNX file, or one without nodes");
  return out;
}

class ModelImport {
 public:
  ModelImport(const std::string& file, const std::string& directory, const ImportOptions& options)
      : file_(file), options_(options), model_(read_onnx(file)) {
    job_.source = std::filesystem::path(file).filename();
    job_.directory = directory;
  }

  ImportReport run() {
    take_inputs();
    Importer importer(model_.graph(), file_, values_, taken_, batch_);
    importer.run();
    for (const onnx::ValueInfoProto& out : model_.graph().output()) add_heads(importer, out.name());
    job_.layers = importer.layers.layers();
    drop_unused_layers(job_.layers, job_.heads, file_);
    if (job_.layers.empty()) fail(Code::kInvalidArgument, file_, ": its outputs are its inputs, so there is no layer");
    merge_into_mlps(job_.layers, job_.heads, importer.layers.taken());
    for (const std::string& name : importer.shared_weights())
      report_.notes.push_back(str_cat("several nodes take the weight \"", name,
                                      "\", and each of their layers has a copy of it: predictions are those of the "
                                      "file, but training moves the copies apart, because layers share no parameters"));
    report_.weights = has_parameters(job_.layers);
    report_.nodes = model_.graph().node_size();
    for (const ImportedLayer& layer : job_.layers) report_.layers.push_back(str_cat(layer.name, " (", layer.type, ')'));
    if (std::all_of(job_.tables.begin(), job_.tables.end(), [](const ImportedTable& t) { return t.sequence; })) {
      const std::string name = str_cat('c', job_.tables.size());
      job_.tables.push_back({name, 8});
      report_.notes.push_back("a job needs a table that is pooled: no layer takes the one that is there, " + name);
    }
    write();
    return report_;
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(Code::kInvalidArgument, file_, ": ", str_cat(parts...));
  }

  // ---- inputs

  // The first node that takes the input, as a part of a sentence.
  std::string first_use(const std::string& input) const {
    for (const onnx::NodeProto& node : model_.graph().node()) {
      if (std::find(node.input().begin(), node.input().end(), input) != node.input().end())
        return ", which " + Importer::described(node) + " takes";
    }
    return ", and no node takes it";
  }

  // The value of an input, without names of its parts: [batch, width], or with several rows of a sample.
  ImportValue shape_of(const onnx::ValueInfoProto& input) {
    const auto& tensor = input.type().tensor_type();
    const auto sized = [](const auto& d) { return d.has_dim_value() ? std::to_string(d.dim_value()) : d.dim_param(); };
    std::string shape;
    for (const auto& d : tensor.shape().dim()) shape += str_cat(shape.empty() ? "" : ", ", sized(d));
    if (!input.type().has_tensor_type() || tensor.elem_type() != onnx::TensorProto::FLOAT)
      refuse("the input \"", input.name(), "\" must be float32 and is ",
             onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(tensor.elem_type())),
             first_use(input.name()),
             ". Tables stay in Tessera, so export the part of the model that takes the rows of ids, [batch, width]");
    const int rank = tensor.shape().dim_size();
    if (rank != 2 && rank != 3)
      refuse("the input \"", input.name(), "\" must be [batch, width] or [batch, length, width] and is [", shape, ']',
             first_use(input.name()));
    const auto& batch = tensor.shape().dim(0);
    const auto& width = tensor.shape().dim(rank - 1);
    if (!width.has_dim_value() || width.dim_value() < 1)
      refuse("the width of the input \"", input.name(), "\" must be a number and is \"", width.dim_param(),
             "\": export the file with only the batch, and the length of a sequence, as dynamic dimensions");
    if (width.dim_value() > kMostValues)
      refuse("the input \"", input.name(), "\" has ", width.dim_value(), " values of a sample: at most ", kMostValues,
             " can be imported");
    if (batch.has_dim_value()) batch_ = batch.dim_value();
    ImportValue out{.parts = {{"", width.dim_value()}},
                    .sequence = rank == 3 && !tensor.shape().dim(1).has_dim_value()};
    if (rank != 3 || out.sequence) return out;
    out.form = ValueForm::kMatrix;
    out.rows = tensor.shape().dim(1).dim_value();
    if (out.rows < 1 || out.rows > kMostVectors)
      refuse("the input \"", input.name(), "\" has ", out.rows, " vectors of a sample: 1 to ", kMostVectors,
             " become tables, and a sequence of rows must have a dynamic length");
    return out;
  }

  // Makes tables of an input: one, or one for each of several vectors.
  void take_rows(const std::string& input, ImportValue& value) {
    const int64_t width = value.width(), many = value.form == ValueForm::kMatrix ? value.rows : 1;
    value.parts.clear();
    for (int64_t k = 0; k < many; ++k) {
      const std::string name = table_name(many == 1 ? input : str_cat(input, '_', k));
      job_.tables.push_back({name, width, value.sequence});
      value.parts.push_back({name, width});
    }
    if (value.sequence) begin_axes(value);
    const std::string& first = value.parts.front().name;
    report_.inputs.push_back(
        many > 1 ? str_cat(input, " (tables ", first, " to ", value.parts.back().name, ", ", width, " values each)")
                 : str_cat(input, value.sequence ? " (sequence, table " : " (table ", first, ", ", width, " values)"));
  }

  void take_inputs() {
    std::vector<const onnx::ValueInfoProto*> inputs;
    for (const onnx::ValueInfoProto& input : model_.graph().input()) {
      const auto& constants = model_.graph().initializer();
      const auto named = [&](const onnx::TensorProto& c) { return c.name() == input.name(); };
      if (std::none_of(constants.begin(), constants.end(), named)) inputs.push_back(&input);
    }
    std::string dense = options_.dense;
    if (dense.empty()) dense = inputs.size() == 1 ? inputs[0]->name() : "dense";
    bool found = options_.dense.empty() || dense == "none";
    taken_ = {"dense", "pooled"};
    for (const onnx::ValueInfoProto* input : inputs) {
      ImportValue& value = values_[input->name()] = shape_of(*input);
      const bool rows = value.sequence || value.form == ValueForm::kMatrix;
      if (input->name() != dense || (rows && options_.dense.empty())) {
        take_rows(input->name(), value);
        continue;
      }
      if (rows) refuse("--dense ", dense, ": this input has several rows of a sample, so it must be of tables");
      found = true;
      job_.dense = value.width();
      report_.inputs.push_back(str_cat(input->name(), " (dense, ", job_.dense, " values)"));
      value.parts[0].name = "dense";
    }
    for (size_t k = 0; k <= job_.tables.size(); ++k) taken_.insert(str_cat('c', k));
    if (!found) refuse("--dense ", dense, ": the file has no such input");
  }

  // A table may be called like its feature, c0.
  std::string table_name(const std::string& input) {
    const std::string base = layer_name_of(input).empty() ? "table" : layer_name_of(input);
    const auto free = [&](const std::string& name) {
      const auto same = [&](const ImportedTable& t) { return t.name == name; };
      return name != "dense" && name != "pooled" && std::none_of(job_.tables.begin(), job_.tables.end(), same);
    };
    std::string name = base;
    for (int number = 2; !free(name); ++number) name = str_cat(base, '_', number);
    taken_.insert(name);
    return name;
  }

  // ---- outputs

  void add_head(const std::string& name, const std::string& input, const std::string& loss, double weight = 1) {
    ImportedHead head{name, input, loss};
    head.weight = weight;
    const int64_t label = weight > 0 ? labels_++ : labels_ - 1;
    if (label > 0) head.label = str_cat("label", label);
    job_.labels = labels_;
    report_.heads.push_back(str_cat(name, " (", loss, ')'));
    job_.heads.push_back(std::move(head));
  }

  std::string head_name(const std::string& output) {
    std::string base = layer_name_of(output);
    if (base.empty() || base == "row" || base == "label") base = "score";
    std::string name = base;
    const auto is_taken = [&](const ImportedHead& h) { return h.name == name; };
    for (int number = 2; std::any_of(job_.heads.begin(), job_.heads.end(), is_taken); ++number)
      name = str_cat(base, '_', number);
    return name;
  }

  // A head for each column, which is a logit.
  void add_tasks(Importer& importer, const std::string& output, const ImportValue& logits) {
    const int64_t width = logits.width();
    if (width > kMostTasks)
      refuse("the output \"", output, "\" has ", width,
             " logits, and a head of binary_cross_entropy takes one: at most ", kMostTasks,
             " of an output become heads");
    for (int64_t k = 0; k < width; ++k) {
      const ImportValue one = importer.layers.columns(logits, k, 1);
      add_head(head_name(width == 1 ? output : str_cat(output, '_', k)), importer.layers.single(one), kOwnLoss);
    }
  }

  void add_heads(Importer& importer, const std::string& output) {
    const ImportValue value = importer.layers.plain(importer.output(output));
    const ImportedLayer* const made = value.parts.size() == 1 ? importer.layers.maker(value.parts[0].name) : nullptr;
    const auto before = [&] {  // what the last layer takes
      ImportValue out{.parts = made->inputs};
      return out;
    };
    if (made != nullptr && made->type == "activation" && made->options.value("kind", "") == "sigmoid")
      return add_tasks(importer, output, before());
    // A product of probabilities: the logit of it is a layer.
    const bool product = made != nullptr && made->type == "product" && value.width() == 1;
    ImportValue logits;
    for (size_t k = 0; product && k < made->inputs.size(); ++k) {
      const ImportedLayer* const one = importer.layers.maker(made->inputs[k].name);
      if (one != nullptr && one->type == "activation" && one->options.value("kind", "") == "sigmoid")
        logits.parts.insert(logits.parts.end(), one->inputs.begin(), one->inputs.end());
    }
    if (product && logits.parts.size() == made->inputs.size())
      return add_tasks(importer, output, importer.logit_product(output, logits));
    if (options_.logits) return add_tasks(importer, output, value);
    if (made != nullptr && made->type == "softmax" && value.width() > 1) {
      const std::string name = head_name(output), logits = importer.layers.single(before());
      add_head(name + "_logits", logits, "softmax_cross_entropy");
      return add_head(name, value.parts[0].name, "softmax_cross_entropy", 0);
    }
    const std::string name = head_name(output);
    add_head(name, importer.layers.single(value), value.width() == 1 ? "mse" : "softmax_cross_entropy");
    if (value.width() == 1)
      report_.notes.push_back(str_cat(name,
                                      " is predicted as it is, and trained with mse, because it does not end in a "
                                      "sigmoid: if it is a logit, import it with --logits"));
  }

  // ---- files

  void write() {
    namespace fs = std::filesystem;
    std::error_code error;
    if (fs::exists(job_.directory, error))
      fail(Code::kAlreadyExists, job_.directory, " exists: --save takes a new directory");
    fs::create_directories(job_.directory, error);
    if (error) fail(Code::kUnavailable, "cannot make ", job_.directory, ": ", error.message());
    try {
      if (report_.weights) write_parameters(job_.directory + '/' + kImportedWeights, job_.layers);
      const std::string path = job_.directory + '/' + kImportedJob;
      std::ofstream out(path);
      out << job_text(job_);
      out.close();
      if (!out) fail(Code::kUnavailable, "cannot write ", path, ": ", std::generic_category().message(errno));
    } catch (...) {
      fs::remove_all(job_.directory, error);
      throw;
    }
  }

  std::string file_;
  ImportOptions options_;
  onnx::ModelProto model_;
  std::map<std::string, ImportValue> values_;  // of the inputs
  std::set<std::string> taken_;
  int64_t batch_ = -1, labels_ = 0;
  ImportedJob job_;
  ImportReport report_;
};

}  // namespace

ImportReport import_model(const std::string& file, const std::string& directory, const ImportOptions& options) {
  return ModelImport(file, directory, options).run();
}

}  // namespace tessera::cli
