// Files that pyarrow reads in a Python process (frames.py), as arrays of Arrow's C data interface.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "columnar/opened.h"
#include "columnar/python_child.h"
#include "columnar/source.h"
#include "files.h"
#include "tessera/sdk/error.h"

namespace tessera_readers {
namespace {

using tessera::sdk::fail;

constexpr int kDeepestNesting = 64;

std::string one_line(std::string text) {
  text.resize(std::min(text.find('\n'), text.size()));
  while (text.ends_with('.') || text.ends_with(' ')) text.pop_back();
  return text;
}

// Reads the numbers and texts of a frame's head.
class HeadReader {
 public:
  explicit HeadReader(std::string_view head) : rest_(head) {}

  int64_t number() {
    int64_t out = 0;
    std::memcpy(&out, take(sizeof(out)).data(), sizeof(out));
    return out;
  }
  std::string text() { return std::string(take(static_cast<size_t>(number()))); }
  // A count, which is bounded by the size of the head.
  size_t count() {
    const int64_t out = number();
    if (out < 0 || static_cast<size_t>(out) > rest_.size()) wrong();
    return static_cast<size_t>(out);
  }
  [[noreturn]] static void wrong() { throw BrokenStream("a frame is invalid"); }

 private:
  std::string_view take(size_t bytes) {
    if (bytes > rest_.size()) wrong();
    const std::string_view out = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return out;
  }

  std::string_view rest_;
};

struct SchemaNode {
  SchemaNode(HeadReader& head, int depth) : format(head.text()), name(head.text()) {
    const size_t children = head.count();
    const bool has_dictionary = head.number() != 0;
    if (depth > kDeepestNesting) HeadReader::wrong();
    for (size_t i = 0; i < children; ++i) below.push_back(std::make_unique<SchemaNode>(head, depth + 1));
    if (has_dictionary) dictionary = std::make_unique<SchemaNode>(head, depth + 1);
    for (const auto& child : below) pointers.push_back(&child->raw);
    raw.format = format.c_str();
    raw.name = name.c_str();
    raw.flags = ARROW_FLAG_NULLABLE;
    raw.n_children = std::ssize(below);
    raw.children = pointers.data();
    raw.dictionary = dictionary ? &dictionary->raw : nullptr;
  }

  std::string format, name;
  std::vector<std::unique_ptr<SchemaNode>> below;
  std::unique_ptr<SchemaNode> dictionary;
  std::vector<ArrowSchema*> pointers;
  ArrowSchema raw{};
};

// The position of the next buffer in a body.
struct BodyReader {
  const std::byte* at;
  int64_t left;

  const void* take(int64_t bytes) {
    constexpr int64_t kLine = 64;
    if (bytes < 0) return nullptr;
    const int64_t padded = (bytes + kLine - 1) / kLine * kLine;
    if (padded > left) HeadReader::wrong();
    const std::byte* const out = at;
    at += padded;
    left -= padded;
    return out;
  }
};

struct ArrayNode {
  ArrayNode(HeadReader& head, BodyReader& body, const ArrowSchema& schema, int depth) {
    raw.length = head.number();
    raw.null_count = head.number();
    raw.offset = head.number();
    const size_t count = head.count(), children = head.count();
    const bool has_dictionary = head.number() != 0;
    const bool fits = std::cmp_equal(children, schema.n_children) && has_dictionary == (schema.dictionary != nullptr);
    if (!fits || depth > kDeepestNesting || raw.length < 0 || raw.offset < 0) HeadReader::wrong();
    std::vector<int64_t> sizes(count);
    for (int64_t& size : sizes) size = head.number();
    for (const int64_t size : sizes) buffers.push_back(body.take(size));
    for (size_t i = 0; i < children; ++i)
      below.push_back(std::make_unique<ArrayNode>(head, body, *schema.children[i], depth + 1));
    if (has_dictionary) dictionary = std::make_unique<ArrayNode>(head, body, *schema.dictionary, depth + 1);
    for (const auto& child : below) pointers.push_back(&child->raw);
    raw.n_buffers = std::ssize(buffers);
    raw.buffers = buffers.data();
    raw.n_children = std::ssize(below);
    raw.children = pointers.data();
    raw.dictionary = dictionary ? &dictionary->raw : nullptr;
    raw.release = [](ArrowArray* array) { array->release = nullptr; };
  }

  std::vector<const void*> buffers;
  std::vector<std::unique_ptr<ArrayNode>> below;
  std::unique_ptr<ArrayNode> dictionary;
  std::vector<ArrowArray*> pointers;
  ArrowArray raw{};
};

// A batch and the memory of its buffers.
struct ReceivedBatch {
  ReceivedBatch(PythonFrame from, const ArrowSchema& schema) : frame(std::move(from)) {
    HeadReader head(frame.head);
    BodyReader body{frame.body.get(), frame.body_size};
    top = std::make_unique<ArrayNode>(head, body, schema, 0);
  }

  PythonFrame frame;
  std::unique_ptr<ArrayNode> top;
};

// One Python process for all files of a reader.
class SharedPython {
 public:
  explicit SharedPython(PythonOptions options) : options_(std::move(options)) {}

  // Returns an answer. Throws Failure, naming the file, if there is none; BrokenStream for an error of the file.
  PythonFrame ask(const std::string& path, const std::string& command) {
    PythonFrame out;
    try {
      if (!child_) child_ = std::make_unique<PythonChild>(options_);
      out = child_->ask(command);
    } catch (const PythonLost& e) {
      lost(path, e);
    }
    if (out.kind == 'M')
      fail(TSR_UNIMPLEMENTED, path, " is read by pyarrow, which ", options_.python, " does not have (",
           one_line(out.head), "): pip install pyarrow, or name a Python that has it, reader = \"",
           path.ends_with(".parquet") ? "parquet" : "arrow", "?python=/PATH/TO/python\"");
    if (out.kind == 'X') throw BrokenStream(one_line(out.head));
    return out;
  }
  void ask_ahead(const std::string& command) {
    try {
      child_->ask_ahead(command);
    } catch (const PythonLost&) {  // the next ask() reports it
    }
  }
  void close(int64_t id) {
    try {
      if (child_) child_->tell("close " + std::to_string(id));
    } catch (const PythonLost&) {  // the file is gone with it
    }
  }
  int64_t next_id() { return ++ids_; }

 private:
  [[noreturn]] void lost(const std::string& path, const PythonLost& why) const {
    fail(TSR_UNAVAILABLE, path, " cannot be read by pyarrow: ", why.what(),
         child_ ? ""
                : ": install Python and pyarrow (pip install pyarrow), or name a Python that has it by the reader's "
                  "option python");
  }

  PythonOptions options_;
  std::unique_ptr<PythonChild> child_;
  int64_t ids_ = 0;
};

std::string hexadecimal(const std::string& text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

class PythonSource : public ArrowSource {
 public:
  PythonSource(std::shared_ptr<SharedPython> python, std::string path, const ArrowFormat& format)
      : python_(std::move(python)), path_(std::move(path)), id_(python_->next_id()) {
    const PythonFrame frame = python_->ask(
        path_, "open " + std::to_string(id_) + (format.parquet ? " parquet " : " arrow ") + hexadecimal(path_));
    HeadReader head(frame.head);
    schema_ = std::make_unique<SchemaNode>(head, 0);
    const size_t units = head.count();
    for (size_t i = 0; i < units; ++i) {
      const int64_t rows = head.number();
      units_.push_back({rows, head.number()});
    }
  }
  ~PythonSource() override { python_->close(id_); }
  PythonSource(const PythonSource&) = delete;
  PythonSource& operator=(const PythonSource&) = delete;

  const ArrowSchema& schema() const override { return schema_->raw; }
  const std::vector<Unit>& units() const override { return units_; }
  void read(int64_t unit, std::span<const int> columns, int64_t rows, ArrowArrayStream* out) override {
    std::string list;
    for (const int column : columns) (list += list.empty() ? "" : ",") += std::to_string(column);
    (void)python_->ask(
        path_, "read " + std::to_string(id_) + " " + std::to_string(unit) + " " + std::to_string(rows) + " " + list);
    python_->ask_ahead(kNext);
    auto stream = std::make_unique<Stream>();
    stream->source = this;
    for (const int column : columns) stream->columns.push_back(schema_->pointers[static_cast<size_t>(column)]);
    stream->schema = schema_->raw;
    stream->schema.n_children = std::ssize(stream->columns);
    stream->schema.children = stream->columns.data();
    out->get_next = &Stream::get_next;
    out->get_last_error = [](ArrowArrayStream* raw) { return static_cast<Stream*>(raw->private_data)->error.c_str(); };
    out->release = [](ArrowArrayStream* raw) {
      delete static_cast<Stream*>(raw->private_data);
      raw->release = nullptr;
    };
    out->private_data = stream.release();
  }

 private:
  static constexpr const char* kNext = "next";

  // The batches of the unit that was begun last.
  struct Stream {
    PythonSource* source = nullptr;
    std::vector<ArrowSchema*> columns;
    ArrowSchema schema{};  // of the batches
    std::string error;

    // Throws Failure, naming the file, if the Python has gone.
    static int get_next(ArrowArrayStream* raw, ArrowArray* out) {
      auto& self = *static_cast<Stream*>(raw->private_data);
      SharedPython& python = *self.source->python_;
      try {
        PythonFrame frame = python.ask(self.source->path_, kNext);
        *out = {};
        if (frame.kind == 'E') return 0;
        python.ask_ahead(kNext);  // decodes the next batch meanwhile
        auto batch = std::make_unique<ReceivedBatch>(std::move(frame), self.schema);
        *out = batch->top->raw;
        out->release = [](ArrowArray* array) {
          delete static_cast<ReceivedBatch*>(array->private_data);
          array->release = nullptr;
        };
        out->private_data = batch.release();
        return 0;
      } catch (const BrokenStream& e) {
        self.error = e.what();
        return EIO;
      }
    }
  };

  std::shared_ptr<SharedPython> python_;
  std::string path_;
  int64_t id_;
  std::unique_ptr<SchemaNode> schema_;
  std::vector<Unit> units_;
};

}  // namespace

ArrowFiles python_files(const ArrowFormat& format, const PythonOptions& options) {
  const auto python = std::make_shared<SharedPython>(options);
  ArrowFiles out;
  out.open = [python, format](const std::string& path) -> std::unique_ptr<ArrowSource> {
    const auto open = [&] { return std::make_unique<PythonSource>(python, path, format); };
    if (!is_url(path)) return opened(path, format, open);
    try {
      return open();
    } catch (const BrokenStream& e) {
      fail(TSR_UNAVAILABLE, path, " cannot be read: ", e.what());
    }
  };
  out.list = [python](const std::string& url, std::span<const std::string_view> endings) {
    std::string words;
    for (const std::string_view ending : endings) (words += words.empty() ? "" : ",") += ending;
    try {
      const PythonFrame frame = python->ask(url, "list " + words + " " + hexadecimal(url));
      HeadReader head(frame.head);
      std::vector<std::string> files(head.count());
      for (std::string& file : files) file = head.text();
      return files;
    } catch (const BrokenStream& e) {
      fail(TSR_NOT_FOUND, e.what());
    }
  };
  return out;
}

}  // namespace tessera_readers
