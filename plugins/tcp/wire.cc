#include "wire.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>

#include "tessera/sdk/error.h"

namespace tessera::tcp {

Mac proof(std::string_view token, Role role, const Hello& hello, const Address& called, const Nonce& challenge) {
  std::array<uint8_t, 1 + sizeof(Hello) + sizeof(Address) + sizeof(Nonce)> text;
  text[0] = static_cast<uint8_t>(role);
  std::memcpy(text.data() + 1, &hello, sizeof(hello));
  std::memcpy(text.data() + 1 + sizeof(hello), &called, sizeof(called));
  std::memcpy(text.data() + 1 + sizeof(hello) + sizeof(called), challenge.data(), challenge.size());
  Mac mac{};
  unsigned int size = 0;
  const uint8_t* done =
      HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()), text.data(), text.size(), mac.data(), &size);
  if (done == nullptr || size != mac.size()) sdk::fail(TSR_INTERNAL, "tcp: HMAC-SHA-256 is not available");
  return mac;
}

bool equal(const Mac& a, const Mac& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

Nonce random_nonce() {
  Nonce nonce;
  if (RAND_bytes(nonce.data(), static_cast<int>(nonce.size())) != 1) {
    sdk::fail(TSR_UNAVAILABLE, "tcp: the system has no random bytes to offer");
  }
  return nonce;
}

GroupId child_id(const GroupId& parent, uint64_t split, int32_t color) {
  std::array<uint8_t, sizeof(GroupId) + sizeof(split) + sizeof(color)> text;
  std::memcpy(text.data(), parent.data(), parent.size());
  std::memcpy(text.data() + parent.size(), &split, sizeof(split));
  std::memcpy(text.data() + parent.size() + sizeof(split), &color, sizeof(color));
  Mac digest{};
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) {
    sdk::fail(TSR_INTERNAL, "tcp: SHA-256 is not available");
  }
  GroupId id;
  std::copy_n(digest.begin(), id.size(), id.begin());
  return id;
}

}  // namespace tessera::tcp
