// Checks readers: every pass over a file, in any order and in blocks of any size, gives the same rows.
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "tessera/abi/draft/reader.h"
#include "verify/check.h"
#include "verify/other_processes.h"

namespace tessera::cli::verify {
namespace {

constexpr int64_t kSmallBlock = 4096;

// Small files in the formats that verify can write, removed with this.
class Files {
 public:
  // `ended`: the last line ends like the others.
  explicit Files(int64_t rows, bool ended = true) {
    std::string name = (std::filesystem::temp_directory_path() / "tessera_verify_XXXXXX").string();
    require(mkdtemp(name.data()) != nullptr, "no directory for the files of this check");
    folder_ = name;
    for (const Format& format : kFormats) {
      paths_.push_back((folder_ / format.name).string());
      std::ofstream out(paths_.back(), std::ios::binary);
      out << format.head;
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t label = row * 7 % 3 == 0 ? 1 : 0, price = row * 17 % 1000;
        std::string_view line = format.line;
        if (!ended && row + 1 == rows) line.remove_suffix(1);
        for (const char c : line) {
          const bool number = c >= '\1' && c <= '\4';
          number ? out << std::array{label, user_of(row), price, row}[static_cast<size_t>(c - '\1')] : out << c;
        }
      }
    }
  }
  ~Files() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  const std::vector<std::string>& paths() const { return paths_; }
  // The id in column "user", which 32 bits do not hold.
  static int64_t user_of(int64_t row) { return 5000000000 + row * 31 % 70001; }

 private:
  struct Format {
    const char *name, *head, *line;  // in `line`, the byte 1 stands for a label, 2 for an id, 3 and 4 for numbers
  };
  static constexpr Format kFormats[] = {
      {"rows.log", "", "label=\1 user=\2 tags=\3,\4 price=\3.5\n"},
      {"rows.csv", "label,user,price,title\n", "\1,\2,\3.5,title \4\n"},
      {"rows.tsv", "label\tuser\tprice\ttitle\n", "\1\t\2\t\3.5\ttitle \4\n"},
      {"rows.jsonl", "", "{\"label\": \1, \"user\": \2, \"price\": \3.5, \"title\": \"title \4\"}\n"},
      {"rows.svm", "", "\1 1:\2 2:\3.5 3:\4\n"},
  };
  std::filesystem::path folder_;
  std::vector<std::string> paths_;
};

// The cells of each wanted column, row by row; a cell is its values as bytes.
using Table = std::vector<std::vector<std::string>>;

class Opened {
 public:
  explicit Opened(Subject& subject) : subject_(subject), part_(subject.make()), api_(part_.api<tsr_reader>()) {}

  // Returns the reason if the path cannot be opened.
  std::string open(const std::string& path, int64_t block_bytes) {
    auto source = sdk::sized<tsr_reader_source>();
    source.path = path.c_str();
    source.block_bytes = block_bytes;
    subject_.doing("open of " + path);
    Call call;
    const tsr_code code = api_.open(part_.self(), &source, call.out());
    if (std::string why = call.fails_well(code, "open"); code != TSR_OK) return why;
    columns = list<tsr_reader_column>("column", api_.column);
    blocks = list<tsr_reader_block>("block", api_.block);
    check_blocks();
    return "";
  }
  // The readable columns, as the format has them.
  std::vector<tsr_reader_want> wants() const {
    std::vector<tsr_reader_want> out;
    for (const tsr_reader_column& c : columns) {
      if (c.type == TSR_READER_UNREADABLE) continue;
      auto want = sdk::sized<tsr_reader_want>();
      want.flags = c.flags;
      want.name = c.name;
      want.type = c.type;
      want.separator = ',';
      want.weight_separator = ':';
      out.push_back(want);
    }
    return out;
  }
  tsr_code try_select(const std::vector<tsr_reader_want>& wants, Call& call) {
    subject_.doing("select");
    wants_ = wants;
    return api_.select(part_.self(), static_cast<int64_t>(wants.size()), sizeof(tsr_reader_want), wants.data(),
                       call.out());
  }
  void select(const std::vector<tsr_reader_want>& wants) {
    Call call;
    const tsr_code code = try_select(wants, call);
    call.succeeds(code, "select of the columns that it lists");
  }
  Table read(int64_t block) {
    std::vector<tsr_reader_values> values(wants_.size());
    for (tsr_reader_values& v : values) v.struct_size = sizeof(v);
    subject_.asks(str_cat("read of block ", block), [&](tsr_error* err) {
      return api_.read(part_.self(), block, sizeof(tsr_reader_values), values.data(), err);
    });
    Table out;
    for (size_t k = 0; k < wants_.size(); ++k)
      out.push_back(cells(wants_[k], values[k], blocks[static_cast<size_t>(block)].rows));
    return out;
  }
  // All rows of the blocks in this order; each block is kept at its own place.
  std::vector<Table> pass(const std::vector<int64_t>& order) {
    std::vector<Table> out(blocks.size());
    for (const int64_t block : order) out[static_cast<size_t>(block)] = read(block);
    return out;
  }
  std::vector<int64_t> in_order() const {
    std::vector<int64_t> out;
    for (size_t i = 0; i < blocks.size(); ++i) out.push_back(static_cast<int64_t>(i));
    return out;
  }
  const tsr_reader& api() const { return api_; }
  void* self() const { return part_.self(); }

  std::vector<tsr_reader_column> columns;
  std::vector<tsr_reader_block> blocks;

 private:
  template <class T, class Slot>
  std::vector<T> list(const char* what, const Slot& slot) {
    std::vector<T> out;
    subject_.doing(what);
    for (int64_t i = 0; i < 1000000; ++i) {
      T one{};
      one.struct_size = sizeof(one);
      Call call;
      const tsr_code code = slot(part_.self(), i, &one, call.out());
      call.fails_well(code, what);
      if (code == TSR_OUT_OF_RANGE) return out;
      call.succeeds(code, str_cat(what, " ", i));
      out.push_back(one);
    }
    broken("its list of ", what, "s does not end");
  }
  void check_blocks() const {
    int64_t file = -1, next = 0;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const tsr_reader_block& b = blocks[i];
      if (b.file != file) {
        require(b.file > file, "block ", i, " is of file ", b.file, ", after one of file ", file);
        file = b.file;
        next = 0;
      }
      require(b.first_row == next && b.rows >= 0, "block ", i, " has ", b.rows, " rows from row ", b.first_row,
              " of its file, but row ", next, " comes next");
      next += b.rows;
    }
  }
  static size_t bytes_of(int32_t type) { return type == TSR_READER_FLOAT32 ? 4 : 8; }
  static std::vector<std::string> cells(const tsr_reader_want& want, const tsr_reader_values& v, int64_t rows) {
    std::vector<std::string> out;
    const auto* data = static_cast<const char*>(v.values);
    const bool text = want.type == TSR_READER_TEXT;
    require(!text || rows == 0 || v.texts != nullptr, "read gives no texts for column ", want.name);
    require((want.flags & TSR_READER_LIST) == 0 || rows == 0 || v.lists != nullptr, "read gives no lists for column ",
            want.name);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t begin = v.lists == nullptr ? row : v.lists[row],
                    end = v.lists == nullptr ? row + 1 : v.lists[row + 1];
      require(begin <= end, "the list in row ", row, " of a block ends before it begins, in column ", want.name);
      std::string cell = v.present == nullptr || v.present[row] != 0 ? "" : "missing";
      for (int64_t i = begin; i < end && cell != "missing"; ++i) {
        if (text) {
          require(v.texts[i] <= v.texts[i + 1], "a text ends before it begins, in column ", want.name);
          cell.append(data + v.texts[i], static_cast<size_t>(v.texts[i + 1] - v.texts[i]));
        } else {
          cell.append(data + static_cast<size_t>(i) * bytes_of(want.type), bytes_of(want.type));
        }
        if (v.weights != nullptr) cell.append(reinterpret_cast<const char*>(&v.weights[i]), sizeof(float));
        if (v.lists != nullptr) cell.push_back('\x1f');
      }
      out.push_back(std::move(cell));
    }
    return out;
  }

  Subject& subject_;
  Made part_;
  const tsr_reader& api_;
  std::vector<tsr_reader_want> wants_;
};

// The path that the reader understands best. Throws Skipped if it opens none.
std::string find_path(Subject& subject, const Files& files) {
  if (const std::string& given = subject.what().input; !given.empty()) {
    Opened reader(subject);
    if (const std::string why = reader.open(given, kSmallBlock); !why.empty())
      throw Skipped(str_cat("it does not open --input ", given, ": ", why));
    return given;
  }
  std::string best;
  size_t most = 0;
  for (const std::string& path : files.paths()) {
    Opened reader(subject);
    if (!reader.open(path, kSmallBlock).empty() || reader.blocks.empty()) continue;
    if (reader.wants().size() <= most) continue;
    most = reader.wants().size();
    best = path;
  }
  if (best.empty()) {
    throw Skipped(
        "it opens none of the files that verify writes (lines of key=value, CSV, TSV, JSON lines, LIBSVM): name a "
        "file that it reads with --input");
  }
  return best;
}

int64_t rows_of(const Subject& subject) { return subject.thorough() ? 70001 : 3001; }

void require_same(const std::vector<Table>& got, const std::vector<Table>& want, const std::string& what) {
  require(got.size() == want.size(), "there are ", got.size(), " blocks ", what, ", not ", want.size());
  for (size_t b = 0; b < want.size(); ++b) {
    for (size_t c = 0; c < want[b].size(); ++c) {
      for (size_t r = 0; r < want[b][c].size(); ++r) {
        require(got[b][c][r] == want[b][c][r], "row ", r, " of block ", b, " is another one in column ", c, " ", what,
                " than in the first pass");
      }
    }
  }
}

// All rows in one table, whatever the blocks.
Table joined(const std::vector<Table>& blocks) {
  Table out(blocks.empty() ? 0 : blocks[0].size());
  for (const Table& block : blocks) {
    for (size_t c = 0; c < out.size(); ++c) out[c].insert(out[c].end(), block[c].begin(), block[c].end());
  }
  return out;
}

void check_reader_passes(Subject& subject) {
  const Files files(rows_of(subject));
  const std::string path = find_path(subject, files);
  Opened reader(subject);
  reader.open(path, kSmallBlock);
  reader.select(reader.wants());
  const std::vector<Table> first = reader.pass(reader.in_order());
  require_same(reader.pass(reader.in_order()), first, "in a second pass");
  std::vector<int64_t> order = reader.in_order();
  std::reverse(order.begin(), order.end());
  require_same(reader.pass(order), first, "when the blocks are read from the last to the first");
  Random random = subject.random(1);
  std::shuffle(order.begin(), order.end(), random);
  require_same(reader.pass(order), first, "when the blocks are read in another order");
  reader.open(path, kSmallBlock);
  reader.select(reader.wants());
  require_same(reader.pass(reader.in_order()), first, "after a second open");
  Opened other(subject);
  other.open(path, 16 * kSmallBlock);
  other.select(other.wants());
  require(joined(other.pass(other.in_order())) == joined(first), "with larger blocks, it gives other rows or columns");
}

double number_in(const std::string& cell, int32_t type) {
  const auto as = [&](auto value) {
    if (cell.size() == sizeof(value)) std::memcpy(&value, cell.data(), sizeof(value));
    return static_cast<double>(value);
  };
  if (type == TSR_READER_FLOAT32) return as(0.0f);
  return type == TSR_READER_INT64 ? as(int64_t{0}) : as(0.0);
}

// A column's numbers in each type are those of its texts.
void compare_numbers(Opened& reader, tsr_reader_want want, const std::vector<std::string>& texts) {
  std::vector<double> numbers;
  bool whole = true;
  for (const std::string& cell : texts) {
    double x = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), x);
    if (error != std::errc() || end != cell.data() + cell.size()) return;
    whole &= x == std::trunc(x);
    numbers.push_back(x);
  }
  for (const int32_t type : {TSR_READER_FLOAT64, TSR_READER_FLOAT32, TSR_READER_INT64}) {
    if (type == TSR_READER_INT64 && !whole) continue;
    want.type = type;
    Call call;
    if (reader.try_select({want}, call) != TSR_OK) continue;
    const std::vector<std::string> read = joined(reader.pass(reader.in_order()))[0];
    for (size_t r = 0; r < numbers.size(); ++r) {
      const double got = number_in(read[r], type);
      const double wanted = type == TSR_READER_FLOAT32 ? double{static_cast<float>(numbers[r])} : numbers[r];
      require(got == wanted, "row ", r, " of column ", want.name, " is ", got, " as a number (TSR_READER_",
              type == TSR_READER_FLOAT64   ? "FLOAT64"
              : type == TSR_READER_FLOAT32 ? "FLOAT32"
                                           : "INT64",
              "), but \"", texts[r], "\" as a text");
    }
  }
}

void check_reader_columns(Subject& subject) {
  const Files files(rows_of(subject));
  const std::string path = find_path(subject, files);
  Opened reader(subject);
  reader.open(path, kSmallBlock);
  std::vector<tsr_reader_want> wants = reader.wants();
  reader.select(wants);
  const Table all = joined(reader.pass(reader.in_order()));
  for (size_t c = wants.size(); c-- > 0;) {
    reader.select({wants[c]});
    require(joined(reader.pass(reader.in_order()))[0] == all[c], "column ", wants[c].name,
            " has other values when only it is selected");
    if (wants[c].type == TSR_READER_TEXT && (wants[c].flags & TSR_READER_LIST) == 0)
      compare_numbers(reader, wants[c], all[c]);
  }
}

// A file that verify wrote has these rows in this order, also if its last line does not end.
void check_reader_rows(Subject& subject) {
  if (!subject.what().input.empty()) throw Skipped("verify does not know what --input has");
  if (!subject.what().inner.empty()) throw Skipped("it works around another reader, whose rows it may leave out");
  constexpr int64_t kRows = 70001;
  for (const bool ended : {true, false}) {
    const Files files(kRows, ended);
    Opened reader(subject);
    reader.open(find_path(subject, files), 64 * kSmallBlock);
    const std::vector<tsr_reader_want> wants = reader.wants();
    const auto named = [&](std::string_view name) {
      return std::find_if(wants.begin(), wants.end(), [&](const tsr_reader_want& w) { return w.name == name; });
    };
    const auto user = named("user");
    if (user == wants.end() || named("label") == wants.end() || named("price") == wants.end())
      throw Skipped("its columns are not those of the files that verify writes");
    tsr_reader_want want = *user;
    want.flags = 0;
    want.type = TSR_READER_TEXT;
    Call call;
    if (reader.try_select({want}, call) != TSR_OK) throw Skipped("it gives no texts");
    const Table all = joined(reader.pass(reader.in_order()));
    const char* const which = ended ? "" : " whose last line does not end";
    require(all[0].size() == static_cast<size_t>(kRows), "it gives ", all[0].size(), " rows of a file of ", kRows,
            " rows", which);
    for (int64_t row = 0; row < kRows; ++row) {
      const std::string& got = all[0][static_cast<size_t>(row)];
      require(got == std::to_string(Files::user_of(row)), "row ", row, " of column user is \"", got,
              "\", but the file has ", Files::user_of(row));
    }
  }
}

void check_reader_errors(Subject& subject) {
  const Files files(100);
  const std::string path = find_path(subject, files);
  Opened reader(subject);
  reader.open(path, kSmallBlock);
  tsr_reader_want want = reader.wants().at(0);
  want.name = "verify_knows_no_such_column";
  Call unknown;
  tsr_code code = reader.try_select({want}, unknown);
  unknown.fails(code, "select of a column that does not exist");
  require(code == TSR_NOT_FOUND, "select of a column that does not exist fails with ", name_of(code),
          ", but that is TSR_NOT_FOUND");
  want = reader.wants().at(0);
  want.flags |= 1u << 31;
  Call told;
  told.fails(reader.try_select({want}, told), "select with an unknown flag that must be understood");
  auto source = sdk::sized<tsr_reader_source>();
  const std::string missing = path + ".there_is_no_such_file";
  source.path = missing.c_str();
  source.block_bytes = kSmallBlock;
  subject.doing("open of a file that does not exist");
  Call call;
  code = reader.api().open(reader.self(), &source, call.out());
  call.fails(code, "open of a file that does not exist");
  require(code == TSR_NOT_FOUND, "open of a file that does not exist fails with ", name_of(code),
          ", but that is TSR_NOT_FOUND");
}

void check_reader_ranks(Subject& subject) {
  const Files files(rows_of(subject));
  const std::vector<double> answers = ask_in_processes(3, [&] {
    const std::string path = find_path(subject, files);
    Opened reader(subject);
    reader.open(path, kSmallBlock);
    reader.select(reader.wants());
    uint32_t all = 17;
    for (const auto& column : joined(reader.pass(reader.in_order()))) {
      for (const std::string& cell : column) {
        for (const char c : cell) all = (all ^ static_cast<unsigned char>(c)) * 0x01000193u;
      }
    }
    return static_cast<double>(all);
  });
  for (size_t rank = 1; rank < answers.size(); ++rank)
    require(answers[rank] == answers[0], "it gives other rows in a process with RANK=", rank, " than with RANK=0");
}

}  // namespace

std::span<const Check> reader_checks() {
  static constexpr const char* kKind = TSR_READER_KIND;
  static constexpr const char* kRead = "abi/draft/reader.h, tsr_reader::read";
  static constexpr const char* kSelect = "abi/draft/reader.h, tsr_reader::select";
  static constexpr Check kChecks[] = {
      {"reader.errors", 3, kKind, kSelect, 30, check_reader_errors},
      {"reader.passes", 4, kKind, kRead, 60, check_reader_passes},
      {"reader.rows", 4, kKind, kRead, 60, check_reader_rows},
      {"reader.columns", 4, kKind, kSelect, 60, check_reader_columns},
      {"reader.ranks", 4, kKind, "abi/draft/reader.h, a reader knows no rank", 60, check_reader_ranks},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify
