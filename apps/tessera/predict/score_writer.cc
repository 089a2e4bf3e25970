#include "predict/score_writer.h"

#include <cmath>
#include <cstdio>
#include <iostream>

#include "csv_field.h"
#include "serve/json_text.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

std::string label_name(const std::vector<AskedHead>& heads, const AskedHead& head) {
  return heads.size() == 1 ? "label" : head.name + "_label";
}

std::string first_line(const std::vector<AskedHead>& heads) {
  std::string out = "row";
  for (const AskedHead& head : heads) {
    if (head.label) out += ',' + csv_field(label_name(heads, head));
    for (size_t w = 0; w < head.width; ++w)
      out += ',' + csv_field(head.width == 1 ? head.name : str_cat(head.name, '_', w));
  }
  return out + '\n';
}

}  // namespace

ScoreWriter::ScoreWriter(const std::string& path, bool as_json, const std::vector<AskedHead>& heads)
    : path_(path), as_json_(as_json) {
  const auto key = [](const std::string& name) { return ", " + serve::json_string(name) + ": "; };
  for (const AskedHead& head : heads) {
    if (as_json)
      columns_.push_back({head, key(label_name(heads, head)), key(head.name)});
    else
      columns_.push_back({head, ",", ","});
  }
  if (!path.empty()) {
    file_.open(path, std::ios::binary);
    if (!file_) fail(Code::kUnavailable, "cannot write to ", path);
  }
  if (!as_json) out() << first_line(heads);
}

void ScoreWriter::add_number(const char* format, float number) {
  if (as_json_ && !std::isfinite(number)) {  // JSON cannot express it
    line_ += "null";
    return;
  }
  char text[32];
  line_.append(text, static_cast<size_t>(std::snprintf(text, sizeof(text), format, static_cast<double>(number))));
}

void ScoreWriter::add(const std::vector<std::vector<float>>& values, const Batch& batch) {
  std::vector<Tensor> labels;
  for (const Column& column : columns_)
    labels.push_back(column.head.label ? batch.label(*column.head.label) : Tensor());
  for (size_t i = 0; i < static_cast<size_t>(batch.labels.numel()); ++i) {
    line_ = as_json_ ? "{\"row\": " : "";
    line_ += std::to_string(row_++);
    for (size_t c = 0; c < columns_.size(); ++c) {
      const auto& [head, label_key, value_key] = columns_[c];
      if (head.label) {
        line_ += label_key;
        add_number("%g", labels[c].data<float>()[i]);
      }
      line_ += value_key;
      if (as_json_ && head.width > 1) line_ += '[';
      for (size_t w = 0; w < head.width; ++w) {
        if (w > 0) line_ += as_json_ ? ", " : ",";
        add_number("%.9g", values[head.output][i * head.width + w]);
      }
      if (as_json_ && head.width > 1) line_ += ']';
    }
    line_ += as_json_ ? "}\n" : "\n";
    out() << line_;
  }
}

void ScoreWriter::flush() {
  out().flush();
  if (!out()) fail(Code::kUnavailable, "cannot write to ", path_.empty() ? "standard output" : path_);
}

std::ostream& ScoreWriter::out() { return path_.empty() ? std::cout : file_; }

}  // namespace tessera::cli
