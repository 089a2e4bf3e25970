// Runs a fuzz target without libFuzzer: on every file of a corpus, then on MUTATIONS mutations of them, the same in
// every run. A finding of a sanitizer or of the target ends the process and leaves the input in crash-TARGET of the
// working folder.
//   fuzz_replay TARGET CORPUS MUTATIONS SECONDS
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz.h"

namespace tessera::fuzz {

#define TARGET(name) void fuzz_##name(Input input);
#include "fuzz_targets.inc"
#undef TARGET

namespace {

using Target = void (*)(Input);

// Null if there is no such target.
Target target_of(std::string_view name) {
#define TARGET(known) \
  if (name == #known) return fuzz_##known;
#include "fuzz_targets.inc"
#undef TARGET
  return nullptr;
}

using Bytes = std::vector<uint8_t>;

std::vector<Bytes> read_corpus(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

class Mutator {
 public:
  explicit Mutator(const std::vector<Bytes>& corpus) : corpus_(corpus) {}

  Bytes next() {
    Bytes bytes = corpus_[below(corpus_.size())];
    for (size_t n = 1 + below(6); n > 0; --n) change(bytes);
    return bytes;
  }

 private:
  size_t below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(random_() % n); }

  void change(Bytes& bytes) {
    static constexpr const char* kWords[] = {"-1",
                                             "1e308",
                                             "null",
                                             "[",
                                             "]",
                                             "{",
                                             "}",
                                             "\"",
                                             ",",
                                             ":",
                                             "18446744073709551615",
                                             "\"binary_data_size\":8",
                                             "\"shape\":[0]",
                                             "\\u0000",
                                             "0.5",
                                             "true"};
    const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(below(bytes.size() + 1));
    switch (below(6)) {
      case 0:
        if (at != bytes.end()) *at = static_cast<uint8_t>(random_());
        break;
      case 1:
        if (at != bytes.end()) *at ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 2:
        bytes.erase(at, at + static_cast<std::ptrdiff_t>(below(static_cast<size_t>(bytes.end() - at) + 1) % 16));
        break;
      case 3: {
        const std::string word = kWords[below(std::size(kWords))];
        bytes.insert(at, word.begin(), word.end());
        break;
      }
      case 4: {  // a piece of another input
        const Bytes& other = corpus_[below(corpus_.size())];
        const size_t first = below(other.size()), n = below(std::min<size_t>(other.size() - first, 64) + 1);
        bytes.insert(at, other.begin() + static_cast<std::ptrdiff_t>(first),
                     other.begin() + static_cast<std::ptrdiff_t>(first + n));
        break;
      }
      default:
        bytes.resize(static_cast<size_t>(at - bytes.begin()));
    }
  }

  const std::vector<Bytes>& corpus_;
  std::mt19937_64 random_{20240131};
};

// The input under test, in a mapped file that survives a crash: its size (8 bytes, little-endian), then its bytes.
class LastInput {
 public:
  LastInput(Target target, const std::string& name)
      : target_(target), path_("crash-" + name), fd_(open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600)) {
    if (fd_ < 0 || ftruncate(fd_, kBytes) != 0) std::abort();
    at_ = static_cast<uint8_t*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    if (at_ == MAP_FAILED) std::abort();
  }
  ~LastInput() {
    munmap(at_, kBytes);
    close(fd_);
    unlink(path_.c_str());
  }
  LastInput(const LastInput&) = delete;
  LastInput& operator=(const LastInput&) = delete;

  void run(Bytes bytes) {
    bytes.resize(std::min(bytes.size(), kBytes - sizeof(uint64_t)));
    const uint64_t size = bytes.size();
    std::memcpy(at_, &size, sizeof(size));
    std::copy(bytes.begin(), bytes.end(), at_ + sizeof(size));
    target_(bytes);
  }

 private:
  static constexpr size_t kBytes = 1 << 20;

  Target target_;
  std::string path_;
  int fd_;
  uint8_t* at_ = nullptr;
};

int replay(Target target, const std::string& name, const std::vector<Bytes>& corpus, int64_t mutations,
           std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  LastInput input(target, name);
  for (const Bytes& bytes : corpus) input.run(bytes);
  Mutator mutator(corpus);
  int64_t done = 0;
  for (; done < mutations && std::chrono::steady_clock::now() < end; ++done) input.run(mutator.next());
  std::printf("%zu inputs of the corpus, %lld mutations\n", corpus.size(), static_cast<long long>(done));
  return 0;
}

}  // namespace
}  // namespace tessera::fuzz

int main(int argc, char** argv) {
  using namespace tessera::fuzz;
  if (argc != 5) {
    std::fprintf(stderr, "usage: fuzz_replay TARGET CORPUS MUTATIONS SECONDS\n");
    return 2;
  }
  const Target target = target_of(argv[1]);
  const auto corpus = target == nullptr ? std::vector<Bytes>() : read_corpus(argv[2]);
  if (corpus.empty()) {
    std::fprintf(stderr, target == nullptr ? "there is no target %s\n" : "%s has no inputs\n", argv[1]);
    return 2;
  }
  return replay(target, argv[1], corpus, std::atoll(argv[3]), std::chrono::seconds(std::atoll(argv[4])));
}
