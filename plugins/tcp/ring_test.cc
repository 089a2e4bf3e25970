// Tests the ring of bytes between two ranks, without ranks: order, bounds, and false counters.
#include "ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

namespace tessera::tcp {
namespace {

constexpr size_t kCapacity = size_t{64} << 10;

struct TestRing {
  RingState state;
  std::vector<char> data = std::vector<char>(kCapacity);
  RingWriter writer{&state, data.data(), kCapacity};
  RingReader reader{&state, data.data(), kCapacity};
};

size_t write(RingWriter& writer, const std::vector<char>& bytes, size_t from, size_t n) {
  const iovec piece{const_cast<char*>(bytes.data()) + from, n};
  return writer.write(&piece, 1, ~size_t{0});
}

size_t read(RingReader& reader, std::vector<char>& bytes, size_t from, size_t n) {
  const iovec pieces[2] = {{bytes.data() + from, n / 3}, {bytes.data() + from + n / 3, n - n / 3}};
  return reader.read(pieces, 2, ~size_t{0});
}

std::vector<char> noise(size_t n) {
  std::mt19937 random(7);
  std::vector<char> bytes(n);
  for (char& b : bytes) b = static_cast<char>(random());
  return bytes;
}

TEST(Ring, TakesWhatFitsAndNoMore) {
  TestRing ring;
  const std::vector<char> sent = noise(kCapacity + 100);
  std::vector<char> got(sent.size());
  EXPECT_EQ(read(ring.reader, got, 0, 10), 0u);
  EXPECT_EQ(write(ring.writer, sent, 0, sent.size()), kCapacity);
  EXPECT_EQ(write(ring.writer, sent, kCapacity, 100), 0u);
  EXPECT_EQ(ring.writer.room(), 0u);
  EXPECT_EQ(read(ring.reader, got, 0, 50), 50u);
  EXPECT_EQ(write(ring.writer, sent, kCapacity, 100), 50u);
  EXPECT_EQ(read(ring.reader, got, 50, got.size() - 50), kCapacity);
  got.resize(kCapacity + 50);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), sent.begin()));
}

TEST(Ring, KeepsTheOrderOverPiecesOfAllSizes) {
  TestRing ring;
  const std::vector<char> sent = noise(size_t{3} << 20);
  std::vector<char> got(sent.size());
  std::thread reader([&] {
    std::mt19937 random(1);
    for (size_t at = 0; at < got.size();) {
      const size_t n = read(ring.reader, got, at, std::min<size_t>(random() % 50000, got.size() - at));
      ASSERT_NE(n, kRingDamaged);
      at += n;
      if (n == 0) std::this_thread::yield();
    }
  });
  std::mt19937 random(2);
  for (size_t at = 0; at < sent.size();) {
    const size_t n = write(ring.writer, sent, at, std::min<size_t>(random() % 50000, sent.size() - at));
    ASSERT_NE(n, kRingDamaged);
    at += n;
    if (n == 0) std::this_thread::yield();
  }
  reader.join();
  EXPECT_EQ(got, sent);
}

// Bytes that were read free the space at the beginning: a ring that only ever held little touches little of its memory.
TEST(Ring, SmallMessagesStayAtItsBeginning) {
  TestRing ring;
  const std::vector<char> sent = noise(1000);
  std::vector<char> got(1000);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(write(ring.writer, sent, 0, 1000), 1000u);
    ASSERT_EQ(read(ring.reader, got, 0, 1000), 1000u);
    ASSERT_EQ(got, sent);
  }
  const auto beyond = ring.data.begin() + (40 << 10);
  EXPECT_EQ(std::count(beyond, ring.data.end(), 0), ring.data.end() - beyond);
}

TEST(Ring, CountersThatCannotBeAreNoticed) {
  std::vector<char> bytes = noise(100);
  for (const uint64_t wrong : {uint64_t{kCapacity + 1}, ~uint64_t{0}}) {
    TestRing ring;
    ring.state.written = wrong;
    EXPECT_EQ(read(ring.reader, bytes, 0, 100), kRingDamaged);
    EXPECT_EQ(ring.reader.available(), kRingDamaged);
  }
  TestRing ring;
  ring.state.taken = 1;
  EXPECT_EQ(ring.writer.room(), kRingDamaged);
  EXPECT_EQ(write(ring.writer, noise(2 * kCapacity), 0, 2 * kCapacity), kRingDamaged);
  ring.state.base = 12345678901;  // every value is a place in the ring
  ring.state.written = 100;
  EXPECT_EQ(read(ring.reader, bytes, 0, 100), 100u);
}

// The bytes of a loan come between the bytes written before and after it, whenever counters are read.
TEST(Ring, LoansKeepTheirPlaceAmongBytes) {
  for (const bool look_early : {false, true}) {
    TestRing ring;
    const std::vector<char> sent = noise(300);
    std::vector<char> got(300);
    EXPECT_TRUE(ring.writer.settled());
    EXPECT_EQ(write(ring.writer, sent, 0, 100), 100u);
    if (look_early) {
      EXPECT_EQ(ring.reader.available(), 100u);
    }
    ASSERT_TRUE(ring.writer.lend(sent.data() + 100, 50));
    ASSERT_TRUE(ring.writer.lend(sent.data() + 150, 50));
    EXPECT_EQ(write(ring.writer, sent, 200, 50), 50u);
    ASSERT_TRUE(ring.writer.lend(sent.data() + 250, 50));

    EXPECT_EQ(read(ring.reader, got, 0, 300), 100u);
    for (const size_t at : {100, 150}) {
      EXPECT_EQ(read(ring.reader, got, 0, 300), 0u);
      ASSERT_NE(ring.reader.loan(), nullptr);
      EXPECT_EQ(ring.reader.loan()->address, reinterpret_cast<uintptr_t>(sent.data()) + at);
      EXPECT_EQ(ring.reader.loan()->bytes, 50u);
      ring.reader.give_back();
    }
    EXPECT_EQ(read(ring.reader, got, 0, 300), 50u);
    EXPECT_FALSE(ring.writer.settled());
    EXPECT_EQ(read(ring.reader, got, 0, 300), 0u);
    ASSERT_NE(ring.reader.loan(), nullptr);
    ring.reader.give_back();
    EXPECT_EQ(ring.reader.loan(), nullptr);
    EXPECT_TRUE(ring.writer.settled());
  }
}

TEST(Ring, LendsOnlySoMuchAtOnce) {
  TestRing ring;
  const char byte = 'x';
  for (uint64_t i = 0; i < RingState::kLoans; ++i) ASSERT_TRUE(ring.writer.lend(&byte, 1));
  EXPECT_FALSE(ring.writer.lend(&byte, 1));
  EXPECT_EQ(ring.writer.room(), 0u);
  EXPECT_EQ(ring.reader.available(), 0u);
  ASSERT_NE(ring.reader.loan(), nullptr);
  ring.reader.give_back();
  EXPECT_TRUE(ring.writer.lend(&byte, 1));
}

TEST(Ring, LoansThatCannotBeAreNoticed) {
  TestRing ring;
  ring.state.lent = RingState::kLoans + 1;
  EXPECT_EQ(ring.reader.available(), kRingDamaged);
  TestRing other;
  other.state.lent = 1;
  other.state.loans[0] = {kCapacity + 1, 0, 1};
  EXPECT_EQ(other.reader.available(), kRingDamaged);
}

}  // namespace
}  // namespace tessera::tcp
