// The tokens that one draw may give, as somebody knows them who can say of one token for little what all of
// them together cost a lot to find.
#pragma once

#include <cstdint>

namespace octavo {

class Allowed {
 public:
  Allowed() = default;
  virtual ~Allowed() = default;
  Allowed(const Allowed&) = delete;
  Allowed& operator=(const Allowed&) = delete;

  // The only one of them, where that is known without looking; -1: there may be others.
  virtual int32_t only() const { return -1; }

  // `has` will probably be asked about this token, but not at once.
  virtual void expect(int32_t) {}

  // Whether a token of the vocabulary is one of them.
  virtual bool has(int32_t token) = 0;

  // All of them: token i is bit i % 8 of byte i / 8. The answer stays as long as this.
  virtual const uint8_t* bits() = 0;
};

inline bool is_marked(const uint8_t* bits, int32_t token) {
  return (bits[token / 8] >> (token % 8) & 1) != 0;
}

// Where all of them are known.
class AllowedBits final : public Allowed {
 public:
  explicit AllowedBits(const uint8_t* bits) : bits_(bits) {}
  bool has(int32_t token) override { return is_marked(bits_, token); }
  const uint8_t* bits() override { return bits_; }

 private:
  const uint8_t* bits_;
};

}  // namespace octavo
