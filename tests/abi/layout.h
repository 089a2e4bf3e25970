/* What the written-down layouts of the plugin contract (tests/abi) and of the C headers (tests/c) say of a struct. */
#ifndef TESSERA_TESTS_ABI_LAYOUT_H
#define TESSERA_TESTS_ABI_LAYOUT_H

#define FIELD(type, member, offset) \
  _Static_assert(offsetof(type, member) == (offset), #type "::" #member " has moved from " #offset)
#define SIZE(type, size) _Static_assert(sizeof(type) >= (size), #type " has shrunk below " #size)
#define FROZEN(type, size) _Static_assert(sizeof(type) == (size), #type " is frozen at " #size)
#define CONSTANT(name, value) _Static_assert((name) == (value), #name " is no longer " #value)

#endif /* TESSERA_TESTS_ABI_LAYOUT_H */
