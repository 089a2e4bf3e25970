#include "plugin/elf_note.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "config/test_refusal.h"
#include "tessera/abi/plugin.h"
#include "tessera/error.h"

namespace tessera::plugin {
namespace {

using testing::HasSubstr;

#if defined(__x86_64__)
constexpr uint16_t kHere = EM_X86_64;
#else
constexpr uint16_t kHere = EM_AARCH64;
#endif

struct Note {
  tsr_note head{
      8, TSR_NOTE_DESC_HEAD + 256, TSR_NOTE_TYPE, TSR_NOTE_OWNER, TSR_ABI_MAJOR, TSR_ABI_MINOR, 0, TSR_ABI_EPOCH};
  char manifest[256]{};
  explicit Note(const char* text) { std::memcpy(manifest, text, std::strlen(text)); }
};

// A file with an ELF header, one loadable segment that covers the file, and one note segment with one or two notes.
struct Image {
  Elf64_Ehdr header{};
  Elf64_Phdr segments[2]{};
  Note note, second{"tessera.sharder/1 acme.second 2.0\n"};

  explicit Image(const char* manifest = "tessera.sharder/1 acme.stripe 1.2.3\n") : note(manifest) {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_DYN;
    header.e_machine = kHere;
    header.e_phoff = sizeof(header);
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 2;
    segments[0].p_type = PT_LOAD;
    segments[0].p_filesz = sizeof(Image);
    segments[1].p_type = PT_NOTE;
    segments[1].p_offset = offsetof(Image, note);
    segments[1].p_filesz = sizeof(note);
    segments[1].p_align = 4;
  }
  void with_second() { segments[1].p_filesz = sizeof(note) + sizeof(second); }
  std::string bytes() const { return {reinterpret_cast<const char*>(this), sizeof(*this)}; }
};

ElfNote parse(const std::string& bytes) {
  return parse_elf_note(bytes.size(), [&](uint64_t offset, void* out, uint64_t size) {
    ASSERT_LE(offset, bytes.size());
    ASSERT_LE(size, bytes.size() - offset);
    std::memcpy(out, bytes.data() + offset, size);
  });
}

std::string refusal(const std::string& bytes) {
  return test::refusal(
      Code::kInvalidArgument, [&] { parse(bytes); }, "accepted");
}

TEST(ElfNote, ReadsTheManifest) {
  Image image("tessera.sharder/1 acme.stripe 1.2.3\ntessera.optimizer/1 acme.stripe 2.0-rc1\n");
  image.note.head.abi_minor = 7;
  const ElfNote note = parse(image.bytes());
  EXPECT_EQ(note.abi_major, TSR_ABI_MAJOR);
  EXPECT_EQ(note.abi_minor, 7u);
  const std::vector<ManifestLine> want = {{"tessera.sharder/1", "acme.stripe", "1.2.3"},
                                          {"tessera.optimizer/1", "acme.stripe", "2.0-rc1"}};
  EXPECT_EQ(note.components, want);
}

TEST(ElfNote, RefusesFilesThatAreNoLibraries) {
  EXPECT_EQ(refusal(""), "is not an ELF file");
  EXPECT_EQ(refusal("#!/bin/sh\n"), "is not an ELF file");
  EXPECT_THAT(refusal(std::string("\x7f") + "ELF"), HasSubstr("truncated"));
  Image image;
  image.header.e_machine = EM_S390;
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("another architecture: ELF machine 22"));
  image = Image();
  image.header.e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("not 64-bit"));
  image = Image();
  image.header.e_ident[EI_DATA] = ELFDATA2MSB;
  EXPECT_EQ(refusal(image.bytes()), "is not little-endian");
  image = Image();
  image.header.e_type = ET_EXEC;
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("not a shared library"));
}

TEST(ElfNote, RefusesOtherVersions) {
  Image image;
  image.note.head.abi_major = 2;
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("is built for plugin ABI 2.0, while this core has ABI 1.0"));
  image = Image();
  image.note.head.min_host_minor = 3;
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("needs a core with ABI 1.3 or newer"));
}

TEST(ElfNote, RefusesOtherReleaseCandidates) {
  Image image;
  image.note.head.epoch = 0;
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("is built for release candidate 1 of plugin ABI 1, while this core has "
                                                "release candidate 3"));
  image.note.head.epoch = TSR_ABI_EPOCH + 1;
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("is built for release candidate 4 of plugin ABI 1"));
}

TEST(ElfNote, TakesTheNoteOfItsOwnVersion) {
  for (const bool other_major : {true, false}) {
    Image image;
    image.with_second();
    (other_major ? image.note.head.abi_major : image.note.head.epoch) = 7;
    const ElfNote note = parse(image.bytes());
    ASSERT_EQ(note.components.size(), 1u);
    EXPECT_EQ(note.components[0].id, "acme.second");
    image.second.head.abi_major = 9;
    EXPECT_THAT(refusal(image.bytes()), HasSubstr(other_major ? "plugin ABI 7.0" : "release candidate 7"));
  }
}

TEST(ElfNote, LeavesFurtherWordsOfALineToLaterVersions) {
  const ElfNote note = parse(Image("tessera.sharder/1 a 1.0 flags=3 more\n").bytes());
  const std::vector<ManifestLine> want = {{"tessera.sharder/1", "a", "1.0"}};
  EXPECT_EQ(note.components, want);
}

TEST(ElfNote, RefusesBadManifests) {
  EXPECT_THAT(refusal(Image("").bytes()), HasSubstr("empty manifest"));
  EXPECT_THAT(refusal(Image("tessera.sharder/1 a 1").bytes()), HasSubstr("does not end"));
  EXPECT_THAT(refusal(Image("tessera.sharder/1 a\n").bytes()), HasSubstr("kind id version"));
  EXPECT_THAT(refusal(Image("tessera.sharder/1  1\n").bytes()), HasSubstr("kind id version"));
  EXPECT_THAT(refusal(Image("k a  2\n").bytes()), HasSubstr("kind id version"));
  EXPECT_THAT(refusal(Image("k a\t 1\n").bytes()), HasSubstr("kind id version"));
  EXPECT_THAT(refusal(Image("k Upper 1\n").bytes()), HasSubstr("lists the id \"Upper\""));
  EXPECT_EQ(refusal(Image("k a 1\nk b 1\nk a 2\n").bytes()), "lists k \"a\" twice");
  Image endless;
  std::memset(endless.note.manifest, 'x', sizeof(endless.note.manifest));
  EXPECT_THAT(refusal(endless.bytes()), HasSubstr("without an end"));
}

TEST(ElfNote, FindsTheNoteBehindOthers) {
  Image image;
  image.segments[0].p_type = PT_NOTE;  // the ELF header taken as notes: nonsense, but inside the file
  EXPECT_EQ(parse(image.bytes()).components.size(), 1u);
  image = Image();
  image.note.head.type = 9;
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("not a Tessera plugin"));
  image = Image();
  image.note.head.desc_size = TSR_NOTE_DESC_HEAD;
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("note of 16 bytes, without a manifest"));
  image.note.head.desc_size = 0xFFFFFFFFu;
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("not a Tessera plugin"));
  image.note.head.owner_size = 0xFFFFFFFFu;
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("not a Tessera plugin"));
}

// A file has as many program headers as possible, each for a note segment as large as the file. It must not be read
// 65,535 times.
TEST(ElfNote, ReadsSegmentsThatLieOverEachOtherOnlySoOften) {
  Image image;
  image.header.e_phnum = 0xFFFF;
  image.header.e_phoff = sizeof(image);
  Elf64_Phdr all{};
  all.p_type = PT_NOTE;
  all.p_filesz = 1 << 19;
  all.p_align = 4;
  std::string bytes = image.bytes();
  for (int i = 0; i < image.header.e_phnum; ++i) bytes.append(reinterpret_cast<const char*>(&all), sizeof(all));
  uint64_t taken = 0;
  const auto read = [&](uint64_t offset, void* out, uint64_t size) {
    taken += size;
    std::memcpy(out, bytes.data() + offset, size);
  };
  EXPECT_THROW(parse_elf_note(bytes.size(), read), Error);
  EXPECT_LT(taken, bytes.size() + (2 << 20));
}

TEST(ElfNote, RefusesEveryPrefix) {
  const std::string whole = Image().bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(refusal(whole.substr(0, size)), "accepted") << "cut to " << size << " bytes";
  }
}

TEST(ElfNote, RefusesSegmentsBeyondTheFile) {
  for (uint64_t offset : {uint64_t{1}, uint64_t{1} << 40, ~uint64_t{0}}) {
    Image image;
    image.segments[0].p_offset = offset;
    EXPECT_THAT(refusal(image.bytes()), HasSubstr("truncated"));
    image = Image();
    image.header.e_phoff = offset == 1 ? sizeof(Image) : offset;
    EXPECT_THAT(refusal(image.bytes()), HasSubstr("truncated"));
  }
}

// Whatever bytes change, only Error comes out. parse() asserts that nothing outside the file is read.
TEST(ElfNote, SurvivesDamage) {
  std::mt19937 random(7);
  const std::string whole = Image().bytes();
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = whole;
    const size_t head = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr) + 64;
    for (int i = 0; i < 3; ++i) damaged[random() % head] = static_cast<char>(random());
    refusal(damaged);
  }
}

}  // namespace
}  // namespace tessera::plugin
