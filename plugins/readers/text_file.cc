#include "text_file.h"

#include <fcntl.h>
#include <iconv.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "tessera/sdk/error.h"
#ifdef TESSERA_ZSTD
#include <zstd.h>
#endif

namespace tessera_readers {

using tessera::sdk::fail;

class TextFile::Decoder {
 public:
  virtual ~Decoder() = default;
  // Adds to `done` the number of bytes it has written, also if it throws.
  virtual void read(Input& in, char* to, size_t n, size_t& done) = 0;
};

namespace {

constexpr size_t kInput = size_t{1} << 17;

// Reads up to the end, at most n bytes.
size_t read_all(Input& in, char* to, size_t n) {
  size_t done = 0;
  for (size_t got = 1; got > 0 && done < n; done += got) got = in.read(to + done, n - done);
  return done;
}

class Gzip : public TextFile::Decoder {
 public:
  Gzip() : input_(kInput) {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~Gzip() override { inflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  void read(Input& in, char* to, size_t n, size_t& done) override {
    constexpr size_t kMost = size_t{1} << 30;  // uInt counts in zlib
    while (done < n && !at_end_) {
      if (stream_.avail_in == 0 && !fill(in)) break;
      const size_t room = std::min(n - done, kMost);
      stream_.next_out = reinterpret_cast<Bytef*>(to + done);
      stream_.avail_out = static_cast<uInt>(room);
      const int code = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      inside_ = true;
      if (code == Z_STREAM_END) next_member(in);
      if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
        throw Damaged(std::string("is damaged (") + (stream_.msg != nullptr ? stream_.msg : "no gzip") + ")");
    }
  }

 private:
  bool fill(Input& in) {
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(in.read(input_.data(), input_.size()));
    if (stream_.avail_in > 0) return true;
    if (inside_) throw Damaged("is cut off");
    at_end_ = true;
    return false;
  }
  // gzip files may be concatenated.
  void next_member(Input& in) {
    inside_ = false;
    if (stream_.avail_in == 0 && !fill(in)) return;
    inflateReset(&stream_);
  }

  z_stream stream_{};
  std::vector<char> input_;
  bool inside_ = true;  // inside a member
  bool at_end_ = false;
};

#ifdef TESSERA_ZSTD
class Zstd : public TextFile::Decoder {
 public:
  Zstd() : stream_(ZSTD_createDStream()), input_(kInput) {
    if (stream_ == nullptr) throw std::bad_alloc();
  }
  ~Zstd() override { ZSTD_freeDStream(stream_); }
  Zstd(const Zstd&) = delete;
  Zstd& operator=(const Zstd&) = delete;

  void read(Input& in, char* to, size_t n, size_t& done) override {
    ZSTD_outBuffer out{to, n, 0};
    for (; out.pos < n; done = out.pos) {
      if (in_.pos == in_.size) {
        in_ = {input_.data(), in.read(input_.data(), input_.size()), 0};
        if (in_.size == 0) {
          const size_t before = out.pos;
          if (wanted_ != 0) wanted_ = ZSTD_decompressStream(stream_, &out, &in_);  // flushes its remaining output
          if (wanted_ != 0 && out.pos == before) throw Damaged("is cut off");
          if (out.pos == before) return;
          continue;
        }
      }
      wanted_ = ZSTD_decompressStream(stream_, &out, &in_);
      if (ZSTD_isError(wanted_) != 0) throw Damaged(std::string("is damaged (") + ZSTD_getErrorName(wanted_) + ")");
    }
  }

 private:
  ZSTD_DStream* stream_;
  std::vector<char> input_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  size_t wanted_ = 0;  // 0 at the end of a frame
};
#endif

// Converts text in another encoding to UTF-8.
class Recoder : public TextFile::Decoder {
 public:
  // `inner` decompresses; null if the file is not compressed.
  Recoder(const char* encoding, std::unique_ptr<TextFile::Decoder> inner)
      : encoding_(encoding), inner_(std::move(inner)), iconv_(::iconv_open("UTF-8", encoding)) {
    // iconv_open() returns the pointer -1 for an unknown encoding.
    if (reinterpret_cast<std::intptr_t>(iconv_) == -1)
      fail(TSR_UNIMPLEMENTED, "the C library of this machine does not read the encoding ", encoding);
  }
  ~Recoder() override { ::iconv_close(iconv_); }
  Recoder(const Recoder&) = delete;
  Recoder& operator=(const Recoder&) = delete;

  void read(Input& in, char* to, size_t n, size_t& done) override {
    while (done < n && (taken_ < text_.size() || recode(in))) {
      const size_t some = text_.copy(to + done, n - done, taken_);
      done += some;
      taken_ += some;
    }
  }

 private:
  // Fills text_; returns false at the end.
  bool recode(Input& in) {
    if (wrong_) throw Damaged(std::string("has bytes that are not text in the encoding ") + encoding_);
    const size_t rest = bytes_.size();
    bytes_.resize(rest + kInput);
    size_t got = 0;
    inner_ ? inner_->read(in, bytes_.data() + rest, kInput, got) : void(got = in.read(bytes_.data() + rest, kInput));
    bytes_.resize(rest + got);
    if (got == 0 && rest > 0) throw Damaged(std::string("ends inside a character in the encoding ") + encoding_);
    constexpr size_t kMost = 4;  // bytes of UTF-8 per byte
    text_.resize(kMost * bytes_.size());
    char *from = bytes_.data(), *to = text_.data();
    size_t left = bytes_.size(), room = text_.size();
    wrong_ = ::iconv(iconv_, &from, &left, &to, &room) == static_cast<size_t>(-1) && errno == EILSEQ;
    text_.resize(text_.size() - room);
    bytes_.erase(0, bytes_.size() - left);
    taken_ = 0;
    return got > 0;
  }

  const char* encoding_;
  std::unique_ptr<TextFile::Decoder> inner_;
  iconv_t iconv_;
  std::string bytes_, text_;
  size_t taken_ = 0;    // bytes of text_ taken
  bool wrong_ = false;  // invalid bytes follow text_
};

constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::string_view kZstdMagic = "\x28\xb5\x2f\xfd";

constexpr std::string_view kStandardInput = "standard input";

int open_file(const std::string& path) {
  const int file = path == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(TSR_NOT_FOUND, "cannot read ", path == "-" ? kStandardInput : path, ": ", std::strerror(errno));
  return file;
}

// The first eight bytes, or all. If the file cannot seek, `input` reads only four, because there may not be more yet,
// and returns them again later.
std::string first_bytes(int file, const std::string& path, Input& input) {
  constexpr size_t kBytes = 8;
  std::string out(kBytes, '\0');
  const off_t begin = std::max<off_t>(::lseek(file, 0, SEEK_CUR), 0);
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(file, out.data() + done, out.size() - done, begin + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == ESPIPE) return input.look(kZstdMagic.size());
    if (got < 0) fail(TSR_UNAVAILABLE, "cannot read ", path, ": ", std::strerror(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  out.resize(done);
  return out;
}

// Files that are neither text nor compressed in a known way, whatever their name is.
struct OtherKind {
  std::string_view magic, what, remedy;
};
constexpr std::string_view kUnpack = "unpack it first, or compress it with gzip or zstd";
constexpr std::string_view kWrite = "write it as CSV first, for example with pandas";
constexpr std::array<OtherKind, 14> kOtherKinds = {{
    {"PK\3\4", "a zip archive or a spreadsheet", "unpack it, or write the sheet as CSV"},
    {"BZh91AY&", "compressed by bzip2", kUnpack},
    {"\xfd"
     "7zXZ",
     "compressed by xz", kUnpack},
    {"7z\xbc\xaf", "a 7z archive", kUnpack},
    {"PAR1\x15", "a Parquet file",
     "the reader parquet takes it (reader = \"parquet\", --reader parquet), also by a name that ends in .parquet"},
    {std::string_view("ARROW1\0", 7), "an Arrow file",
     "the reader arrow takes it (reader = \"arrow\", --reader arrow), also by a name that ends in .arrow"},
    {"\x80\x04\x95", "a pickle", kWrite},
    {"\x80\x05\x95", "a pickle", kWrite},
    {"SQLite f", "a database of SQLite", kWrite},
    {"\x89HDF", "an HDF5 file", kWrite},
    {"\xd0\xcf\x11\xe0", "a spreadsheet", kWrite},
    {"%PDF-", "a PDF file", kWrite},
    {std::string_view("\xff\xfe\0\0", 4), "text in UTF-32", "write it in UTF-8"},
    {std::string_view("\0\0\xfe\xff", 4), "text in UTF-32", "write it in UTF-8"},
}};

void refuse_other_kinds(const std::string& first, const std::string& path) {
  for (const OtherKind& kind : kOtherKinds) {
    if (!first.starts_with(kind.magic)) continue;
    const bool named = path.ends_with(".parquet") || path.ends_with(".arrow");  // which another reader was asked for
    const std::string_view remedy = kind.remedy.substr(0, named ? kind.remedy.find(", also by") : kind.remedy.npos);
    fail(TSR_INVALID_ARGUMENT, path, " is ", kind.what, ", which no reader of text reads: ", remedy);
  }
}

std::unique_ptr<TextFile::Decoder> decompressor_for(const std::string& first, const std::string& path) {
  refuse_other_kinds(first, path);
  if (first.starts_with(kGzipMagic)) return std::make_unique<Gzip>();
  if (!first.starts_with(kZstdMagic)) return nullptr;
#ifdef TESSERA_ZSTD
  (void)path;
  return std::make_unique<Zstd>();
#else
  fail(TSR_UNIMPLEMENTED, path, " is compressed by zstd, which this build cannot read: build it with libzstd-dev");
#endif
}

std::unique_ptr<TextFile::Decoder> decoder_for(const std::string& first, const std::string& path,
                                               const char* encoding) {
  std::unique_ptr<TextFile::Decoder> decompressor = decompressor_for(first, path);
  if (encoding == nullptr) return decompressor;
  return std::make_unique<Recoder>(encoding, std::move(decompressor));
}

}  // namespace

std::string Input::look(size_t n) {
  std::string bytes(n, '\0');
  bytes.resize(read_all(*this, bytes.data(), n));
  return looked_at_ = bytes;
}

size_t Input::read(char* to, size_t n) {
  if (!looked_at_.empty()) {
    const size_t some = looked_at_.copy(to, n);
    looked_at_.erase(0, some);
    return some;
  }
  for (;;) {
    const ssize_t got = ::read(file_, to, n);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) throw Damaged(std::string("cannot be read: ") + std::strerror(errno));
  }
}

bool Input::wait(double seconds) const {
  constexpr double kMost = 3600;
  pollfd file{file_, POLLIN, 0};
  return !looked_at_.empty() || ::poll(&file, 1, static_cast<int>(1000 * std::min(seconds, kMost))) > 0;
}

TextFile::TextFile(const std::string& path, const char* encoding)
    : path_(path == "-" ? kStandardInput : path), encoding_(encoding), file_(open_file(path)), input_(file_) {
  try {
    decoder_ = decoder_for(first_bytes(file_, path_, input_), path_, encoding_);
  } catch (const Damaged& e) {
    ::close(file_);
    fail(TSR_UNAVAILABLE, path_, " ", e.what());
  } catch (...) {
    ::close(file_);
    throw;
  }
}

TextFile::~TextFile() { ::close(file_); }

size_t TextFile::read(char* to, size_t n) {
  size_t got = 0;
  try {
    decoder_ ? decoder_->read(input_, to, n, got) : void(got = read_all(input_, to, n));
  } catch (const Damaged& e) {
    throw Damaged(e.what(), got);
  }
  offset_ += static_cast<int64_t>(got);
  return got;
}

size_t TextFile::read_some(char* to, size_t n) {
  if (decoder_) return read(to, n);
  const size_t got = input_.read(to, n);
  offset_ += static_cast<int64_t>(got);
  return got;
}

void TextFile::rewind() {
  ::lseek(file_, 0, SEEK_SET);
  decoder_ = decoder_for(first_bytes(file_, path_, input_), path_, encoding_);
  offset_ = 0;
}

void TextFile::seek(int64_t offset) {
  if (!decoder_) {
    ::lseek(file_, offset, SEEK_SET);
    offset_ = offset;
    return;
  }
  if (offset < offset_) rewind();
  std::vector<char> between(std::min<size_t>(kInput, static_cast<size_t>(offset - offset_)));
  while (offset_ < offset) {
    const size_t part = std::min<size_t>(between.size(), static_cast<size_t>(offset - offset_));
    if (read(between.data(), part) < part) return;  // the next read is then short as well
  }
}

}  // namespace tessera_readers
