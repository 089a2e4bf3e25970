#include "plugin/elf_note.h"

#include <elf.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "tessera/abi/plugin.h"
#include "tessera/error.h"

namespace tessera::plugin {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
constexpr const char* kMachineName = "x86-64";
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
constexpr const char* kMachineName = "AArch64";
#else
#error "name the ELF machine of this architecture"
#endif
static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kMaxNotes = 1 << 20;  // bytes of all note segments together; further ones are skipped
constexpr uint32_t kNoteHead = 12;       // three numbers before the owner

[[noreturn]] void refuse(const auto&... parts) { fail(Code::kInvalidArgument, parts...); }

class Parser {
 public:
  Parser(uint64_t file_size, const ReadAt& read) : size_(file_size), read_(read) {}

  ElfNote parse() {
    const std::vector<Descriptor> notes = descriptors();
    for (const Descriptor& note : notes) {
      if (note.abi_major == TSR_ABI_MAJOR && note.epoch == TSR_ABI_EPOCH) return decode(note);
    }
    refuse_version(notes.front());
  }

  // The list of the first note, whatever its version.
  std::vector<ManifestLine> components() {
    const std::string text = descriptors().front().manifest;
    std::vector<ManifestLine> out;
    read_manifest(std::string_view(text).substr(0, text.find('\0')), &out);
    return out;
  }

 private:
  struct Descriptor {  // the numbers of a note in their order, and the text after them
    uint32_t abi_major, abi_minor, min_host_minor, epoch;
    std::string manifest;
  };

  std::vector<Descriptor> descriptors() const {
    const std::vector<Elf64_Phdr> headers = program_headers(file_header());
    for (const Elf64_Phdr& h : headers) {
      if (h.p_type == PT_LOAD || h.p_type == PT_DYNAMIC || h.p_type == PT_NOTE) {
        check_range(h.p_offset, h.p_filesz, "a segment");
      }
    }
    std::vector<Descriptor> notes;
    uint64_t left = kMaxNotes;
    for (const Elf64_Phdr& h : headers) {
      if (h.p_type != PT_NOTE || h.p_filesz > left) continue;
      left -= h.p_filesz;  // counted together, because segments may overlap
      std::string bytes(h.p_filesz, '\0');
      read_(h.p_offset, bytes.data(), bytes.size());
      find_notes(bytes, h.p_align == 8 ? 8 : 4, &notes);
    }
    if (notes.empty()) refuse("has no ", TSR_NOTE_SECTION, " note: it is a library, but not a Tessera plugin");
    return notes;
  }

  void check_range(uint64_t offset, uint64_t size, const char* what) const {
    if (offset > size_ || size > size_ - offset) {
      refuse("is truncated: ", what, " of ", size, " bytes at ", offset, " does not fit into the file's ", size_,
             " bytes");
    }
  }

  Elf64_Ehdr file_header() const {
    Elf64_Ehdr h{};
    if (size_ < SELFMAG) refuse("is not an ELF file");
    read_(0, h.e_ident, SELFMAG);
    if (std::memcmp(h.e_ident, ELFMAG, SELFMAG) != 0) refuse("is not an ELF file");
    check_range(0, sizeof(h), "the ELF header");
    read_(0, &h, sizeof(h));
    if (h.e_ident[EI_CLASS] != ELFCLASS64) refuse("is an ELF file of class ", int{h.e_ident[EI_CLASS]}, ", not 64-bit");
    if (h.e_ident[EI_DATA] != ELFDATA2LSB) refuse("is not little-endian");
    if (h.e_machine != kMachine) {
      refuse("is built for another architecture: ELF machine ", h.e_machine, ", while this is ", kMachineName, " (",
             kMachine, ")");
    }
    if (h.e_type != ET_DYN) refuse("is not a shared library (ELF type ", h.e_type, ")");
    return h;
  }

  std::vector<Elf64_Phdr> program_headers(const Elf64_Ehdr& h) const {
    if (h.e_phentsize != sizeof(Elf64_Phdr)) refuse("has program headers of ", h.e_phentsize, " bytes instead of 56");
    check_range(h.e_phoff, uint64_t{h.e_phnum} * sizeof(Elf64_Phdr), "the program header table");
    std::vector<Elf64_Phdr> headers(h.e_phnum);
    if (!headers.empty()) read_(h.e_phoff, headers.data(), headers.size() * sizeof(Elf64_Phdr));
    return headers;
  }

  // Adds the Tessera notes of a segment.
  static void find_notes(const std::string& bytes, uint64_t align, std::vector<Descriptor>* out) {
    const auto padded = [align](uint64_t n) { return (n + align - 1) / align * align; };
    for (uint64_t at = 0; at + kNoteHead <= bytes.size();) {
      uint32_t head[3];  // owner size, descriptor size, type
      std::memcpy(head, bytes.data() + at, sizeof(head));
      const uint64_t owner = at + kNoteHead;
      const uint64_t desc = at + padded(kNoteHead + uint64_t{head[0]});
      if (desc > bytes.size() || head[1] > bytes.size() - desc) return;
      if (head[2] == TSR_NOTE_TYPE && head[0] == sizeof(TSR_NOTE_OWNER) &&
          std::memcmp(bytes.data() + owner, TSR_NOTE_OWNER, sizeof(TSR_NOTE_OWNER)) == 0) {
        if (head[1] <= TSR_NOTE_DESC_HEAD) refuse("has a Tessera note of ", head[1], " bytes, without a manifest");
        uint32_t numbers[4];
        static_assert(sizeof(numbers) == TSR_NOTE_DESC_HEAD);
        std::memcpy(numbers, bytes.data() + desc, sizeof(numbers));
        out->push_back({numbers[0], numbers[1], numbers[2], numbers[3],
                        bytes.substr(desc + TSR_NOTE_DESC_HEAD, head[1] - TSR_NOTE_DESC_HEAD)});
      }
      at = desc + padded(head[1]);
    }
  }

  [[noreturn]] static void refuse_version(const Descriptor& note) {
    if (note.abi_major != TSR_ABI_MAJOR) {
      refuse("is built for plugin ABI ", note.abi_major, ".", note.abi_minor, ", while this core has ABI ",
             TSR_ABI_MAJOR, ".", TSR_ABI_MINOR, ": use a build of the plugin for ABI ", TSR_ABI_MAJOR);
    }
    const uint32_t candidate = std::max(note.epoch, 1u);  // the first candidate wrote 0
    refuse("is built for release candidate ", candidate, " of plugin ABI ", TSR_ABI_MAJOR, ", while this core has ",
           "release candidate ", TSR_ABI_EPOCH, ": build the plugin with headers of this core");
  }

  static ElfNote decode(const Descriptor& desc) {
    ElfNote note{desc.abi_major, desc.abi_minor, desc.min_host_minor, {}};
    if (note.min_host_minor > TSR_ABI_MINOR) {
      refuse("needs a core with ABI ", TSR_ABI_MAJOR, ".", note.min_host_minor, " or newer, while this core has ",
             TSR_ABI_MAJOR, ".", TSR_ABI_MINOR, ": upgrade Tessera or use an older version of the plugin");
    }
    const std::string_view text = desc.manifest;
    const size_t end = text.find('\0');
    if (end == std::string_view::npos) refuse("has a manifest without an end");
    read_manifest(text.substr(0, end), &note.components);
    return note;
  }

  static void read_manifest(std::string_view text, std::vector<ManifestLine>* out) {
    std::set<std::pair<std::string, std::string>> seen;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      if (end == std::string_view::npos) refuse("has a manifest whose last line does not end");
      out->push_back(read_line(text.substr(0, end)));
      const ManifestLine& line = out->back();
      if (!seen.emplace(line.kind, line.id).second) refuse("lists ", line.kind, " \"", line.id, "\" twice");
      text.remove_prefix(end + 1);
    }
    if (out->empty()) refuse("has an empty manifest: it provides nothing");
  }

  static ManifestLine read_line(std::string_view line) {
    const bool printable = std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; });
    const size_t a = line.find(' ');
    const size_t b = a == std::string_view::npos ? a : line.find(' ', a + 1);
    if (!printable || b == std::string_view::npos || a == 0 || b == a + 1 || b + 1 == line.size() ||
        line[b + 1] == ' ') {
      refuse("has a manifest with a line that is not \"kind id version\"");
    }
    const std::string_view version = line.substr(b + 1);
    ManifestLine out{std::string(line.substr(0, a)), std::string(line.substr(a + 1, b - a - 1)),
                     std::string(version.substr(0, version.find(' ')))};
    constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789_.-";
    if (out.id.find_first_not_of(kAllowed) != std::string::npos) {
      refuse("lists the id \"", out.id, "\", but ids have letters a-z, digits, _ . - only");
    }
    return out;
  }

  uint64_t size_;
  const ReadAt& read_;
};

}  // namespace

ElfNote parse_elf_note(uint64_t file_size, const ReadAt& read) { return Parser(file_size, read).parse(); }

std::vector<ManifestLine> refused_components(uint64_t file_size, const ReadAt& read) {
  try {
    return Parser(file_size, read).components();
  } catch (const Error&) {  // the file is no plugin, or its note has another form
    return {};
  }
}

}  // namespace tessera::plugin
